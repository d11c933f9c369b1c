package ratelimit

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/bench/internal/peer"
	"github.com/headgate/headgate/internal/testenv"
)

// copies is the number of domains of each config: one for each attempt.
const copies = 6

// testCase is a config and a sequence of requests.
type testCase struct {
	name     string
	config   string // without the domain
	top      []*node
	requests []*rlsv3.RateLimitRequest
}

func (c *testCase) domain(attempt int) string { return fmt.Sprintf("%s-%d", c.name, attempt) }

// world is both servers, with the configs of some test cases and a shared Redis.
type world struct {
	t            *testing.T
	theirs, ours rlsv3.RateLimitServiceClient
	rows         []string       // of the table
	differences  map[string]int // number of differences by row
}

// ready is the config of the requests that check whether Headgate has its Redis.
const ready = "domain: ready\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1000000000}}]\n"

func newWorld(t *testing.T, binary, redis string, testCases []*testCase, differences map[string]int) *world {
	t.Helper()
	dir := t.TempDir()
	configs := map[string]string{"ready.yaml": ready}
	importRules(t, binary, dir, configs)
	for _, c := range testCases {
		own := map[string]string{}
		for attempt := range copies {
			own[c.domain(attempt)+".yaml"] = "domain: " + c.domain(attempt) + "\n" + c.config
		}
		c.markSkipped(importRules(t, binary, dir, own))
		maps.Copy(configs, own)
	}
	peer.MakeStrict(t, filepath.Join(dir, "rules")) // a cached denial has no results of other descriptors
	address := testenv.FreeAddress(t)
	write(t, dir, map[string]string{"headgate.yaml": fmt.Sprintf(
		"listen: {grpc: %q, http: off, ops: off, admin: off, allow_refunds: [grpc]}\nredis: {address: %q}\nrules: [rules]\n",
		address, "redis://"+redis)})
	serve := exec.CommandContext(t.Context(), binary, "serve", "--config", filepath.Join(dir, "headgate.yaml"))
	testenv.Run(t, serve, address)
	theirs := peer.Ratelimit(t, redis, configs)
	w := &world{t, dial(t, theirs.Address), dial(t, address), documentedRows(t), differences}
	w.awaitRedis()
	return w
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// importRules imports configs as rules, and returns the warnings of the import.
func importRules(t *testing.T, binary, dir string, configs map[string]string) string {
	t.Helper()
	write(t, dir, configs)
	command := exec.CommandContext(t.Context(), binary, "rules", "import", "--from", "envoy-ratelimit", "--dir", "rules")
	command.Args = append(command.Args, slices.Sorted(maps.Keys(configs))...)
	command.Dir = dir
	var warnings bytes.Buffer
	command.Stderr = &warnings
	if err := command.Run(); err != nil && command.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, &warnings)
	}
	return warnings.String()
}

var noRule = regexp.MustCompile(`(?m)^.*\.yaml:(\d+):\d+: .*no rule created`)

// markSkipped marks the nodes of which the import made no rule.
func (c *testCase) markSkipped(warnings string) {
	left := map[string]bool{}
	for _, found := range noRule.FindAllStringSubmatch(warnings, -1) {
		left[found[1]] = true
	}
	each(nil, c.top, func(path []*node) {
		p := path[len(path)-1]
		p.skipped = left[strconv.Itoa(p.line+1)] // the domain is on the first line
	})
}

func dial(t *testing.T, address string) rlsv3.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rlsv3.NewRateLimitServiceClient(conn)
}

// awaitRedis returns when Redis has decided 20 consecutive requests of Headgate in time.
func (w *world) awaitRedis() {
	w.t.Helper()
	r := &rlsv3.RateLimitRequest{Domain: "ready", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("k", "v")}}
	deadline := time.Now().Add(20 * time.Second)
	for inTime := 0; inTime < 20; inTime++ {
		if w.call(w.ours, r).inconclusive() {
			inTime = 0
		}
		if time.Now().After(deadline) {
			w.t.Fatal("Headgate: Redis unavailable")
		}
	}
}

// run sends the requests to both servers and compares the responses with the models. An attempt is inconclusive if a second ends
// during a call or Redis is late.
func (w *world) run(c *testCase) {
	w.t.Helper()
	for attempt := range copies {
		if w.attempt(c, c.domain(attempt)) {
			return
		}
		w.t.Logf("%s: inconclusive", c.domain(attempt))
		w.awaitRedis()
	}
	w.t.Fatalf("%s: inconclusive %d times", c.name, copies)
}

func (w *world) attempt(c *testCase, domain string) (whole bool) {
	w.t.Helper()
	theirs, ours, without := c.model(), c.model(w.rows...), map[string]*model{}
	for _, row := range w.rows {
		without[row] = c.model(slices.DeleteFunc(slices.Clone(w.rows), func(other string) bool { return other == row })...)
	}
	for i, r := range c.requests {
		r.Domain = domain
		got := w.call(w.theirs, r)
		if got.inconclusive() {
			return false
		}
		w.compare(c, i, "envoyproxy/ratelimit", got.outcome(time.Second), theirs.outcome(r, got.before.Unix()))
		if got = w.call(w.ours, r); got.inconclusive() {
			return false
		}
		want := ours.outcome(r, got.before.Unix())
		w.compare(c, i, "Headgate", got.outcome(time.Microsecond), want)
		for row, m := range without {
			if fmt.Sprint(m.outcome(r, got.before.Unix())) != fmt.Sprint(want) {
				w.differences[row]++
			}
		}
	}
	return true
}

func (c *testCase) model(on ...string) *model {
	m := &model{map[string]bool{}, c.top, map[string]int64{}}
	for _, row := range on {
		m.on[row] = true
	}
	return m
}

func (w *world) compare(c *testCase, i int, who string, got, want outcome) {
	w.t.Helper()
	if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); got != want {
		var requests strings.Builder
		for _, r := range c.requests[:i+1] {
			fmt.Fprintln(&requests, r)
		}
		w.t.Fatalf("%s: unexpected response to the last request:\ngot  %s\nwant %s\n%s\n%s",
			who, got, want, c.config, &requests)
	}
}
