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

// copies is how many domains each config has: one for each attempt.
const copies = 6

// trial is a config, and what is asked about it in turn.
type trial struct {
	name     string
	config   string // but for the domain
	top      []*place
	requests []*rlsv3.RateLimitRequest
}

func (c *trial) domain(attempt int) string { return fmt.Sprintf("%s-%d", c.name, attempt) }

// world is both servers, with the configs of some trials and a Redis that they share.
type world struct {
	t            *testing.T
	theirs, ours rlsv3.RateLimitServiceClient
	rows         []string       // of the table
	seen         map[string]int // how often each made a difference
}

// ready is what is asked to see whether Headgate has its Redis.
const ready = "domain: ready\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1000000000}}]\n"

func newWorld(t *testing.T, binary, redis string, trials []*trial, seen map[string]int) *world {
	t.Helper()
	dir := t.TempDir()
	configs := map[string]string{"ready.yaml": ready}
	importRules(t, binary, dir, configs)
	for _, c := range trials {
		own := map[string]string{}
		for attempt := range copies {
			own[c.domain(attempt)+".yaml"] = "domain: " + c.domain(attempt) + "\n" + c.config
		}
		c.markLeft(importRules(t, binary, dir, own))
		maps.Copy(configs, own)
	}
	peer.MakeStrict(t, filepath.Join(dir, "rules")) // a denial that is believed tells nothing of other descriptors
	address := testenv.FreeAddress(t)
	write(t, dir, map[string]string{"headgate.yaml": fmt.Sprintf(
		"listen: {grpc: %q, http: off, ops: off, admin: off, allow_refunds: [grpc]}\nredis: {address: %q}\nrules: [rules]\n",
		address, "redis://"+redis)})
	serve := exec.CommandContext(t.Context(), binary, "serve", "--config", filepath.Join(dir, "headgate.yaml"))
	testenv.Run(t, serve, address)
	theirs := peer.Ratelimit(t, redis, configs)
	w := &world{t, dial(t, theirs.Address), dial(t, address), documented(t), seen}
	w.wait()
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

// importRules makes rules of configs, and returns what the import says it cannot carry over.
func importRules(t *testing.T, binary, dir string, configs map[string]string) string {
	t.Helper()
	write(t, dir, configs)
	command := exec.CommandContext(t.Context(), binary, "rules", "import", "--from", "envoy-ratelimit", "--out", "rules")
	command.Args = append(command.Args, slices.Sorted(maps.Keys(configs))...)
	command.Dir = dir
	var told bytes.Buffer
	command.Stderr = &told
	if err := command.Run(); err != nil && command.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, &told)
	}
	return told.String()
}

var noRule = regexp.MustCompile(`(?m)^.*\.yaml:(\d+):\d+: .*there is no rule for it`)

// markLeft marks the places of which the import has told that there is no rule.
func (c *trial) markLeft(told string) {
	left := map[string]bool{}
	for _, found := range noRule.FindAllStringSubmatch(told, -1) {
		left[found[1]] = true
	}
	each(nil, c.top, func(way []*place) {
		p := way[len(way)-1]
		p.left = left[strconv.Itoa(p.line+1)] // the domain is on the first line
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

// wait returns when Headgate has its Redis, and has had it for a while.
func (w *world) wait() {
	w.t.Helper()
	r := &rlsv3.RateLimitRequest{Domain: "ready", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("k", "v")}}
	deadline := time.Now().Add(20 * time.Second)
	for inTime := 0; inTime < 20; inTime++ {
		if w.ask(w.ours, r).spoilt() {
			inTime = 0
		}
		if time.Now().After(deadline) {
			w.t.Fatal("Headgate has no Redis")
		}
	}
}

// play asks both servers, and compares what they say with the models. A second that ends during a call, and a Redis
// that is late, spoil an attempt.
func (w *world) play(c *trial) {
	w.t.Helper()
	for attempt := range copies {
		if w.attempt(c, c.domain(attempt)) {
			return
		}
		w.t.Logf("%s was spoilt", c.domain(attempt))
		w.wait()
	}
	w.t.Fatalf("%s was spoilt %d times", c.name, copies)
}

func (w *world) attempt(c *trial, domain string) (whole bool) {
	w.t.Helper()
	theirs, ours, without := c.model(), c.model(w.rows...), map[string]*model{}
	for _, row := range w.rows {
		without[row] = c.model(slices.DeleteFunc(slices.Clone(w.rows), func(other string) bool { return other == row })...)
	}
	for i, r := range c.requests {
		r.Domain = domain
		said := w.ask(w.theirs, r)
		if said.spoilt() {
			return false
		}
		w.compare(c, i, "envoyproxy/ratelimit", said.answer(time.Second), theirs.answer(r, said.before.Unix()))
		if said = w.ask(w.ours, r); said.spoilt() {
			return false
		}
		want := ours.answer(r, said.before.Unix())
		w.compare(c, i, "Headgate", said.answer(time.Microsecond), want)
		for row, m := range without {
			if fmt.Sprint(m.answer(r, said.before.Unix())) != fmt.Sprint(want) {
				w.seen[row]++
			}
		}
	}
	return true
}

func (c *trial) model(on ...string) *model {
	m := &model{map[string]bool{}, c.top, map[string]int64{}}
	for _, row := range on {
		m.on[row] = true
	}
	return m
}

func (w *world) compare(c *trial, i int, who string, got, want answer) {
	w.t.Helper()
	if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); got != want {
		var asked strings.Builder
		for _, r := range c.requests[:i+1] {
			fmt.Fprintln(&asked, r)
		}
		w.t.Fatalf("%s does not answer the last request as expected:\ngot  %s\nwant %s\n%s\n%s",
			who, got, want, c.config, &asked)
	}
}
