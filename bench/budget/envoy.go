package main

import (
	"embed"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/headgate/headgate/bench/internal/peer"
	"github.com/headgate/headgate/internal/testenv"
)

// configs are the config of Envoy, a template executed with an envoyConfig, and the scripts of its Lua filter.
//
//go:embed envoy.yaml usage.lua chunks.lua
var configs embed.FS

// envoyOptions are how Envoy counts. The zero value is what the documentation of Envoy AI Gateway describes: "token usage is charged
// after the response completes", as reported by the model in its last chunk, and requests pass if the rate limit service fails. AI
// Gateway reads that chunk with an external processor; a Lua filter does the same with fewer parts, and Envoy's rate limit filter
// cannot distinguish the two.
//
// Both options are more than the documentation offers. With both, the peer counts all that it can count with its protocol, which has
// no reservations: what it cannot count is what streams that are running will have cost.
type envoyOptions struct {
	// countChunks counts the tokens while they pass, so that a stream that the client resets is counted too.
	countChunks bool
	// failureModeDeny denies requests if the rate limit service fails.
	failureModeDeny bool
}

type envoyConfig struct {
	Admin, Listen, Model, Service, Script string
	FailureModeDeny                       bool
}

// limits is the config of envoyproxy/ratelimit.
const limits = `domain: budget
descriptors:
  - key: tenant
    rate_limit: {unit: month, requests_per_unit: %d}
`

// startEnvoy starts Envoy and envoyproxy/ratelimit in front of a model and returns Envoy's address.
func startEnvoy(t testing.TB, o envoyOptions, budget int64, m *model, redis *testenv.Server) (address string) {
	t.Helper()
	service := peer.Ratelimit(t, redis.Addr(), map[string]string{"limits.yaml": fmt.Sprintf(limits, budget)})
	script := "usage.lua"
	if o.countChunks {
		script = "chunks.lua"
	}
	lua, err := configs.ReadFile(script)
	testenv.NoError(t, err)
	config := envoyConfig{
		Admin: testenv.FreeAddress(t), Listen: testenv.FreeAddress(t), Model: m.address, Service: service.Address,
		Script: strings.ReplaceAll(string(lua), "PRICE", strconv.Itoa(price)), FailureModeDeny: o.failureModeDeny,
	}
	functions := template.FuncMap{
		"socket": func(address string) string {
			host, port, _ := strings.Cut(address, ":")
			return "{socket_address: {address: " + host + ", port_value: " + port + "}}"
		},
		"indent": func(by int, text string) string {
			return strings.Repeat(" ", by) + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", by))
		},
	}
	var text strings.Builder
	testenv.NoError(t, template.Must(template.New("").Funcs(functions).ParseFS(configs, "envoy.yaml")).ExecuteTemplate(&text, "envoy.yaml", config))
	dir := t.TempDir()
	testenv.WriteFiles(t, dir, map[string]string{"envoy.yaml": text.String()})
	command := exec.CommandContext(t.Context(), testenv.Find(t, "envoy"),
		"-c", "envoy.yaml", "--concurrency", "2", "--use-dynamic-base-id", "-l", "warn")
	command.Dir = dir
	testenv.Run(t, command, config.Listen)
	return config.Listen
}

// countedByRatelimit returns the sum of the counters of envoyproxy/ratelimit, which has one.
func countedByRatelimit(t testing.TB, redis *testenv.Server) (sum int64) {
	t.Helper()
	keys, _ := redis.Must(t, "KEYS", "*").([]any)
	for _, key := range keys {
		count, err := strconv.ParseInt(fmt.Sprint(redis.Must(t, "GET", fmt.Sprint(key))), 10, 64)
		testenv.NoError(t, err)
		sum += count
	}
	return sum
}
