package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/offenders"
	"github.com/headgate/headgate/internal/server/telemetry"
	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/storewrap"
)

// seeing measures what metrics, traces, the lists of who is limited and what was refused add to a decision that this process makes by
// itself.
func seeing(scope *paired.Scope, aims *paired.Aims, rounds int, slice time.Duration) (func(), error) {
	store := storewrap.New(memstore.New(memstore.Options{}), storewrap.Options{})
	scope.Cleanup(store.Close)
	plenty, little := headgate.PerSecond(headgate.MaxCost), headgate.Per(1, 365*24*time.Hour)
	rule := func(id, path string, by string, limit headgate.Limit) headgate.Rule {
		return headgate.Rule{ID: id, Match: headgate.Match{Path: path}, By: []string{by}, Limit: limit}
	}
	limiter, err := headgate.New(store, rule("one", "/one", "user", plenty), rule("a", "/three", "user", plenty), rule("b", "/three", "ip", plenty),
		rule("c", "/three", "tenant", plenty), rule("spent", "/refused", "user", little))
	if err != nil {
		return nil, err
	}
	observe, err := newObservers(scope, limiter)
	if err != nil {
		return nil, err
	}
	observed := limiter.WithObserver(observe)
	questions := []string{"/one", "/three", "/refused"}
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
	rounds, slice = 4*rounds, slice/8 // the difference is small, and the machine is not quiet
	var variants []paired.Variant
	for _, path := range questions {
		variants = append(variants,
			paired.Variant{Name: "g   Check " + path, Callers: 1, Warm: slice / 10, Do: check(limiter, path)},
			paired.Variant{Name: "g   Check " + path + ", observed", Callers: 1, Warm: slice / 10, Do: check(observed, path)})
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("\nin the process, 1 caller, leased or refused here, %d rounds of %s; medians and quartiles\n", rounds, slice)
	paired.Table(variants, s)
	return func() {
		for i, path := range questions {
			bare, seen := variants[2*i], variants[2*i+1]
			added := make([]float64, rounds)
			for round := range added {
				added[round] = 1_000 * (s[seen.Name][round].ClientCPU - s[bare.Name][round].ClientCPU)
			}
			aims.AtMost("g "+path+", CPU ns that telemetry adds", paired.Of(added), 400)
			allocs := func(v paired.Variant) float64 { return testing.AllocsPerRun(2_000, func() { _ = v.Do(0, 0) }) }
			more := make([]float64, rounds) // leases are renewed in the background, which allocates
			for round := range more {
				more[round] = allocs(seen) - allocs(bare)
			}
			aims.AtMost("g "+path+", allocations that telemetry adds", paired.Of(more), 0)
		}
	}, nil
}

// newObservers are those of the server, with traces of one request in a hundred for a collector that is not there.
func newObservers(scope *paired.Scope, limiter *headgate.Limiter) (func(context.Context, *headgate.Observation), error) {
	log := slog.New(slog.DiscardHandler)
	tracer, err := tracing.New(scope.Context(), tracing.Options{Address: "http://127.0.0.1:1", Sample: 0.01, Log: log})
	if err != nil {
		return nil, err
	}
	scope.Cleanup(func() { tracer.Close(context.Background()) })
	metrics := telemetry.New("")
	top := offenders.New(offenders.Options{Rules: limiter.Rules})
	refused := denials.New(denials.Options{Rules: limiter.Rules, TraceID: tracing.TraceID, Log: log})
	return func(ctx context.Context, o *headgate.Observation) {
		metrics.Note(o)
		tracer.Note(ctx, o)
		top.Note(o)
		refused.Note(ctx, o)
	}, nil
}

// The line of the server that has it observed, and what is in its place in one that nobody sees.
const (
	observedLine = "engine, all := s.limiter.WithObserver(s.observe), s.config.Listen.AllowRefunds"
	unseenLine   = "engine, all := s.limiter, s.config.Listen.AllowRefunds"
)

// buildUnseen compiles the program without telemetry of decisions, which it cannot be told to leave out.
func buildUnseen(scope *paired.Scope) (string, error) {
	dir := scope.TempDir()
	source, err := filepath.Abs(filepath.Join("..", "cmd", "headgate", "servelisteners.go"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	changed := bytes.Replace(text, []byte(observedLine), []byte(unseenLine), 1)
	if bytes.Equal(text, changed) {
		return "", fmt.Errorf("%s has no longer the line that this takes out", source)
	}
	replaced, overlay := filepath.Join(dir, "unseen.go"), filepath.Join(dir, "overlay.json")
	files, err := json.Marshal(map[string]map[string]string{"Replace": {source: replaced}})
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{replaced: changed, overlay: files} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", err
		}
	}
	return testenv.BuildHeadgate(scope, "-overlay", overlay), nil
}

// seeingServed compares servers with and without telemetry, in front of the same Redis.
func seeingServed(scope *paired.Scope, aims *paired.Aims, rounds int, slice time.Duration) (func(), error) {
	rounds, slice = 3*rounds, slice/2
	redis := testenv.Start(scope, testenv.Redis)
	unseen, err := buildUnseen(scope)
	if err != nil {
		return nil, err
	}
	var variants []paired.Variant
	for _, program := range []struct{ name, path string }{{"without telemetry", unseen}, {"with telemetry", testenv.BuildHeadgate(scope)}} {
		server, address, err := startHeadgate(scope, program.path, redis.Addr())
		if err != nil {
			return nil, err
		}
		conn, err := dial(scope, address)
		if err != nil {
			return nil, err
		}
		variants = append(variants,
			paired.Variant{Name: "h1  Check, 1 limit, " + program.name, Callers: callers, Do: ourUnary(conn, "/one"), ServerCPU: server.CPU},
			paired.Variant{Name: "h3  Check, 3 limits, " + program.name, Callers: callers, Do: ourUnary(conn, "/three"), ServerCPU: server.CPU})
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("\ngRPC, %d callers, strict, %d rounds of %s; medians and quartiles\n", callers, rounds, slice)
	paired.Table(variants, s)
	by := func(i int) []paired.Sample { return s[variants[i].Name] }
	return func() {
		aims.AtLeast("h1, with ÷ without telemetry, throughput", paired.Ratio(by(2), by(0), paired.Throughput), 0.95)
		aims.AtLeast("h3, with ÷ without telemetry, throughput", paired.Ratio(by(3), by(1), paired.Throughput), 0.95)
	}, nil
}
