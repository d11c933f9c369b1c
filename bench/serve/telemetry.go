package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/offenders"
	"github.com/headgate/headgate/internal/server/telemetry"
	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/storewrap"
)

// observability measures the overhead of metrics, traces and the lists of offenders and of recent denials on a decision that this
// process makes without Redis.
func observability(s *paired.Suite) {
	store := storewrap.New(memstore.New(memstore.Options{}), storewrap.Options{})
	s.Cleanup(store.Close)
	plenty, little := headgate.PerSecond(headgate.MaxCost), headgate.Per(1, 365*24*time.Hour)
	rule := func(id, path string, by string, limit headgate.Limit) headgate.Rule {
		return headgate.Rule{ID: id, Match: headgate.Match{Path: path}, By: []string{by}, Limit: limit}
	}
	limiter, err := headgate.New(store, rule("one", "/one", "user", plenty), rule("a", "/three", "user", plenty), rule("b", "/three", "ip", plenty),
		rule("c", "/three", "tenant", plenty), rule("spent", "/denied", "user", little))
	testenv.NoError(s, err)
	observed := limiter.WithObserver(newObservers(s, limiter))
	paths := []string{"/one", "/three", "/denied"}
	check := func(c interface {
		Check(context.Context, headgate.Request) (headgate.Decision, error)
	}, path string,
	) func(caller, n int) error {
		requests := make([]headgate.Request, 100)
		for i := range requests {
			requests[i].Attributes = headgate.Attributes{
				"path": path, "user": strconv.Itoa(i), "ip": "192.0.2." + strconv.Itoa(i), "tenant": "acme", "tier": "pro", "method": "GET",
			}
		}
		return func(_, n int) error {
			_, err := c.Check(context.Background(), requests[n%len(requests)])
			return err
		}
	}
	rounds, slice := 4*s.Rounds, s.Slice/8 // the difference is small, and the machine is noisy
	var variants []paired.Variant
	for _, path := range paths {
		variants = append(variants,
			paired.Variant{Name: "g   Check " + path, Callers: 1, Warm: slice / 10, Do: check(limiter, path)},
			paired.Variant{Name: "g   Check " + path + ", observed", Callers: 1, Warm: slice / 10, Do: check(observed, path)})
	}
	got := s.Measure("in process, 1 caller, leased or denied locally", rounds, slice, variants)
	for i, path := range paths {
		without, with := variants[2*i], variants[2*i+1]
		nanos := func(sample paired.Sample) float64 { return 1_000 * sample.ClientCPU }
		s.ExpectMax("g "+path+", CPU ns that telemetry adds", got.Difference(with.Name, without.Name, nanos), 400)
		allocs := func(v paired.Variant) float64 { return testing.AllocsPerRun(2_000, func() { _ = v.Do(0, 0) }) }
		more := make([]float64, rounds) // leases are renewed in the background, which allocates
		for round := range more {
			more[round] = allocs(with) - allocs(without)
		}
		s.ExpectMax("g "+path+", allocations that telemetry adds", paired.Of(more), 0)
	}
}

// newObservers returns the observers of the server, with traces of one request in a hundred for an unavailable collector.
func newObservers(s *paired.Suite, limiter *headgate.Limiter) func(context.Context, *headgate.Observation) {
	log := slog.New(slog.DiscardHandler)
	tracer, err := tracing.New(s.Context(), tracing.Options{Address: "http://127.0.0.1:1", Sample: 0.01, Log: log})
	testenv.NoError(s, err)
	s.Cleanup(func() { tracer.Close(context.Background()) })
	metrics := telemetry.New("")
	top := offenders.New(offenders.Options{Rules: limiter.Rules})
	denied := denials.New(denials.Options{Rules: limiter.Rules, TraceID: tracing.TraceID, Log: log})
	return func(ctx context.Context, o *headgate.Observation) {
		metrics.Observe(o)
		tracer.Observe(ctx, o)
		top.Observe(o)
		denied.Observe(ctx, o)
	}
}

// The line of the server that adds the observers, and its replacement in a build without telemetry.
const (
	observedLine   = "engine, refunds := s.limiter.WithObserver(s.observe), s.config.Listen.AllowRefunds"
	unobservedLine = "engine, refunds := s.limiter, s.config.Listen.AllowRefunds"
)

// buildUnobserved compiles the program without telemetry of decisions, which no setting can turn off.
func buildUnobserved(t testing.TB) string {
	dir := t.TempDir()
	source := filepath.Join(testenv.Repository(t), "internal", "server", "checks.go")
	text, err := os.ReadFile(source)
	testenv.NoError(t, err)
	without := strings.Replace(string(text), observedLine, unobservedLine, 1)
	if without == string(text) {
		t.Fatalf("%s: the line to replace was not found: %s", source, observedLine)
	}
	files, err := json.Marshal(map[string]map[string]string{"Replace": {source: filepath.Join(dir, "unobserved.go")}})
	testenv.NoError(t, err)
	testenv.WriteFiles(t, dir, map[string]string{"unobserved.go": without, "overlay.json": string(files)})
	return testenv.BuildHeadgate(t, "-overlay", filepath.Join(dir, "overlay.json"))
}

// observabilityServed compares servers with and without telemetry, in front of the same Redis.
func observabilityServed(s *paired.Suite) {
	redis := testenv.Start(s, testenv.Redis)
	var variants []paired.Variant
	for _, program := range []struct{ h1, h3, name, path string }{
		{"h1-", "h3-", "without telemetry", buildUnobserved(s)}, {"h1", "h3", "with telemetry", testenv.BuildHeadgate(s)},
	} {
		server := startHeadgate(s, program.path, redis.Addr())
		conn := bare.Dial(s, server.GRPC)
		variants = append(variants,
			paired.Variant{Name: program.h1 + "  Check, 1 limit, " + program.name, Callers: callers, Do: ourUnary(conn, "/one"), ServerCPU: server.CPU},
			paired.Variant{Name: program.h3 + "  Check, 3 limits, " + program.name, Callers: callers, Do: ourUnary(conn, "/three"), ServerCPU: server.CPU})
	}
	got := s.Measure(fmt.Sprintf("gRPC, %d callers, strict", callers), 3*s.Rounds, s.Slice/2, variants)
	s.ExpectMin("h1, with ÷ without telemetry, throughput", got.Ratio("h1", "h1-", paired.Throughput), 0.95)
	s.ExpectMin("h3, with ÷ without telemetry, throughput", got.Ratio("h3", "h3-", paired.Throughput), 0.95)
}
