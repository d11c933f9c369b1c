package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/peer"
	"github.com/headgate/headgate/internal/testenv"
)

// limits are for the peer, and imported by ours. They never refuse here: every request reaches Redis.
const limits = `domain: api
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000000}
  - key: tenant
    rate_limit: {unit: hour, requests_per_unit: 1000000}
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 1000000}
`

// service is one that Envoy may ask.
type service struct {
	*testenv.Program
	address string
}

// services are what is compared, all of them in front of the same Redis.
type services struct {
	redis                      *testenv.Server
	atOnce, bare, theirs, ours service
	ops                        string // where ours tells its metrics
}

func startServices(scope *paired.Scope) (*services, error) {
	s := &services{redis: testenv.Start(scope, testenv.Redis), ops: testenv.FreeAddress(scope)}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for of, redis := range map[*service]string{&s.atOnce: "", &s.bare: s.redis.Addr()} {
		of.address = testenv.FreeAddress(scope)
		command := exec.CommandContext(scope.Context(), self, "-listen", of.address, "-redis", redis)
		of.Program = testenv.Run(scope, command, of.address)
	}
	// As its documentation recommends. Of 0 to 500 µs, and 2 to 64 connections, nothing was clearly faster.
	s.theirs.Program, s.theirs.address = peer.Ratelimit(scope, s.redis.Addr(),
		map[string]string{"limits.yaml": limits}, "REDIS_PIPELINE_WINDOW=150us")
	err = s.startOurs(scope)
	return s, err
}

// startOurs does what users do who have the peer now.
func (s *services) startOurs(scope *paired.Scope) error {
	dir := scope.TempDir()
	s.ours.address = testenv.FreeAddress(scope)
	// The peer waits as long as it takes, on a machine that is full.
	config := fmt.Sprintf(`listen: {http: off, grpc: %s, ops: %s, admin: off}
redis: {address: "redis://%s", deadline: 1s}
rules: rules
`, s.ours.address, s.ops, s.redis.Addr())
	for name, text := range map[string]string{"limits.yaml": limits, "headgate.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	headgate := testenv.BuildHeadgate(scope)
	rules := exec.CommandContext(scope.Context(), headgate,
		"rules", "import", "--from", "envoy-ratelimit", "--out", "rules", "limits.yaml")
	rules.Dir = dir
	if out, err := rules.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", rules, err, out)
	}
	peer.MakeStrict(scope, filepath.Join(dir, "rules"))
	serve := exec.CommandContext(scope.Context(), headgate, "serve", "--config", "headgate.yaml")
	serve.Dir = dir
	s.ours.Program = testenv.Run(scope, serve, s.ours.address)
	return nil
}

// lost is the share of our decisions that Redis did not make, or that were no yes.
func (s *services) lost(ctx context.Context) (float64, error) {
	metrics, err := get(ctx, "http://"+s.ops+"/metrics")
	if err != nil {
		return 0, err
	}
	var lost, all float64
	for line := range strings.Lines(metrics) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(name, "headgate_decisions_total{") {
			continue
		}
		n, err := strconv.ParseFloat(count, 64)
		if err != nil {
			return 0, err
		}
		all += n
		if !strings.Contains(name, `path="store"`) || !strings.Contains(name, `result="allowed"`) {
			lost += n
		}
	}
	if all == 0 {
		return 0, fmt.Errorf("http://%s/metrics has no decisions", s.ops)
	}

	return lost / all, nil
}

// counted says whether a subject that is new to a service has so many keys in Redis once it was asked for.
func (s *services) counted(scope *paired.Scope, want int64, ask func() error) error {
	size := func() int64 {
		n, _ := s.redis.Must(scope, "DBSIZE").(int64)
		return n
	}
	before := size()
	if err := ask(); err != nil {
		return err
	}
	if got := size() - before; got != want {
		return fmt.Errorf("a new subject has %d keys in Redis, want %d: is it the service that answers?", got, want)
	}
	return nil
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
