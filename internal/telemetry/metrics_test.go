package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/ruledoc"
)

func newEngine(t testing.TB, store headgate.Store, rules ...headgate.Rule) (*Metrics, *Engine) {
	t.Helper()
	for i := range rules {
		if rules[i].By == nil {
			rules[i].By = []string{}
		}
	}
	limiter, err := headgate.New(store, rules...)
	if err != nil {
		t.Fatal(err)
	}
	m := New()
	e := m.Engine(limiter)
	return m, e
}

// ask asks for the same several times.
func ask(t *testing.T, e *Engine, times int, attributes headgate.Attributes) {
	t.Helper()
	for range times {
		if _, err := e.Check(t.Context(), headgate.Request{Attributes: attributes}); err != nil {
			t.Fatal(err)
		}
	}
}

func expect(t *testing.T, m *Metrics, name, want string) {
	t.Helper()
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	two := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 2, Window: time.Hour}
	one := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Window: time.Hour}
	path := func(p string) headgate.Match { return headgate.Match{Path: p} }
	m, e := newEngine(
		t, memstore.New(memstore.Options{}),
		headgate.Rule{ID: "login", Match: path("/login"), Limits: map[string]headgate.Limit{"a": two, "b": two}},
		headgate.Rule{ID: "later", Match: path("/login"), Limit: one, Mode: headgate.Shadow},
		headgate.Rule{
			ID: "trial", Match: path("/trial"), Limits: map[string]headgate.Limit{"a": two, "b": two},
			Candidate: headgate.Plan{Limits: map[string]headgate.Limit{"a": one, "b": one}},
		},
		headgate.Rule{ID: "named", Match: path("/named"), By: []string{"user"}, Limit: two, OnMissing: headgate.DenyMissing},
	)
	ask(t, e, 3, headgate.Attributes{"path": "/login", "tier": "pro"})
	ask(t, e, 2, headgate.Attributes{"path": "/trial"})
	ask(t, e, 1, headgate.Attributes{"path": "/named"})
	ask(t, e, 1, headgate.Attributes{"path": "/"})
	_, err := e.Cancel(t.Context(), []byte("no token"))
	if err == nil {
		t.Fatal("made-up tokens are taken")
	}
	expect(t, m, "headgate_decisions_total", `
# HELP headgate_decisions_total Answers, by what was asked, what was said, who decided, and the request's tier.
# TYPE headgate_decisions_total counter
headgate_decisions_total{call="cancel",path="",result="error",tier=""} 1
headgate_decisions_total{call="check",path="none",result="allowed",tier=""} 1
headgate_decisions_total{call="check",path="rules",result="refused",tier=""} 1
headgate_decisions_total{call="check",path="store",result="allowed",tier=""} 2
headgate_decisions_total{call="check",path="store",result="allowed",tier="pro"} 2
headgate_decisions_total{call="check",path="store",result="refused",tier="pro"} 1
`)
	// Each rule once for a request, however many of its limits it exceeds.
	expect(t, m, "headgate_rule_refusals_total", `
# HELP headgate_rule_refusals_total Requests that exceeded a limit of a rule; they were refused if mode is enforce.
# TYPE headgate_rule_refusals_total counter
headgate_rule_refusals_total{mode="candidate",rule="trial"} 1
headgate_rule_refusals_total{mode="enforce",rule="login"} 1
headgate_rule_refusals_total{mode="enforce",rule="named"} 1
headgate_rule_refusals_total{mode="shadow",rule="later"} 2
`)
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if !strings.Contains(recorder.Body.String(), "\nheadgate_check_duration_seconds_count 8\n") {
		t.Error(recorder.Body.String())
	}
}

// Every call of the engine is counted under its name.
func TestCalls(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}))
	req := headgate.Request{}
	for _, call := range []func() error{
		func() error { _, err := e.Check(t.Context(), req); return err },
		func() error { _, err := e.Peek(t.Context(), req); return err },
		func() error { _, err := e.Reserve(t.Context(), req, 0); return err },
		func() error { _, err := e.Commit(t.Context(), nil, req); return err },
		func() error { _, err := e.Cancel(t.Context(), nil); return err },
		func() error { _, err := e.Refund(t.Context(), req); return err },
	} {
		_ = call() // some are errors, and count too
	}
	calls := map[string]bool{}
	for labels := range *m.decisions.known.Load() {
		calls[labels.call] = true
	}
	want := []string{"cancel", "check", "commit", "peek", "refund", "reserve"}
	if got := slices.Sorted(maps.Keys(calls)); !slices.Equal(got, want) {
		t.Errorf("counted %v", got)
	}
}

// Of several that are decided together every one counts, and the time once.
func TestCheckAll(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}))
	if _, err := e.CheckAll(t.Context(), []headgate.Ask{{}, {}, {Peek: true}, {Credit: true}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CheckAll(t.Context(), []headgate.Ask{{Request: headgate.Request{Rule: "none"}}}); err == nil {
		t.Error("there is no such rule, and no error")
	}
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`call="check",path="none",result="allowed",tier=""} 2`, `call="peek",path="none",result="allowed",tier=""} 1`,
		`call="refund",path="none",result="allowed",tier=""} 1`, `call="check",path="",result="error",tier=""} 1`,
		"headgate_check_duration_seconds_count 2\n", "headgate_checks_in_flight 0\n",
	} {
		if !strings.Contains(recorder.Body.String(), want) {
			t.Errorf("%s is not in\n%s", want, recorder.Body)
		}
	}
}

// failing is a store that does not answer, and waits for that as long as it is told to.
type failing struct {
	err     error
	asked   chan struct{}
	proceed chan struct{}
}

func (s *failing) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	if s.asked != nil {
		s.asked <- struct{}{}
		<-s.proceed
	}
	for i := range results {
		results[i].Err = s.err
	}
	return s.err
}

func (s *failing) Part(headgate.Subject) int { return 0 }

func TestStoreErrors(t *testing.T) {
	t.Parallel()
	store := &failing{err: fmt.Errorf("%w: %w", headgate.ErrUnavailable, errors.New("down"))}
	m, e := newEngine(t, store, headgate.Rule{ID: "all", Limit: headgate.PerMinute(1)})
	ask(t, e, 2, nil)
	store.err = errors.Join(headgate.ErrUnavailable, headgate.ErrUnanswered)
	ask(t, e, 1, nil)
	expect(t, m, "headgate_store_errors_total", `
# HELP headgate_store_errors_total Decisions for which the store did not answer, by whether it may have counted.
# TYPE headgate_store_errors_total counter
headgate_store_errors_total{kind="unanswered"} 1
headgate_store_errors_total{kind="unavailable"} 2
`)
	if got := testutil.ToFloat64(m.decisions.of(decided{"check", "allowed", headgate.PathFailed, ""})); got != 3 {
		t.Errorf("%v requests passed because the store failed", got)
	}
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	store := &failing{err: headgate.ErrUnavailable, asked: make(chan struct{}), proceed: make(chan struct{})}
	m, e := newEngine(t, store, headgate.Rule{ID: "all", Limit: headgate.PerMinute(1)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Stream(nil, nil, nil, func(any, grpc.ServerStream) error {
			_, err := e.Check(context.WithoutCancel(t.Context()), headgate.Request{})
			return err
		})
	}()
	<-store.asked
	if m.inFlight.Load() != 1 || m.streams.Load() != 1 {
		t.Errorf("%d in flight, %d streams", m.inFlight.Load(), m.streams.Load())
	}
	close(store.proceed)
	<-done
	if m.inFlight.Load() != 0 || m.streams.Load() != 0 {
		t.Errorf("%d in flight, %d streams", m.inFlight.Load(), m.streams.Load())
	}
}

// Whatever callers and operators write, there are only so many series.
func TestBounds(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}))
	for i := range maxTiers {
		ask(t, e, 1, headgate.Attributes{"tier": fmt.Sprint("tier-", i)})
	}
	ask(t, e, 2, headgate.Attributes{"tier": "one-too-many"})
	ask(t, e, 1, headgate.Attributes{"tier": "tier-0"})
	if n := len(*m.decisions.known.Load()); n != maxTiers+1 {
		t.Errorf("%d series", n)
	}
	for tier, want := range map[string]float64{other: 2, "tier-0": 2, "tier-99": 1} {
		if got := testutil.ToFloat64(m.decisions.of(decided{"check", "allowed", headgate.PathNone, tier})); got != want {
			t.Errorf("tier %s: %v, not %v", tier, got, want)
		}
	}
	for i := range maxRules + 7 {
		m.refusedBy(&headgate.Decision{Limits: []headgate.LimitDecision{{Rule: strconv.Itoa(i), Enforced: true}}})
	}
	if got := testutil.ToFloat64(m.refusals.of(refusal{other, "enforce"})); got != 7 {
		t.Errorf("%v refusals by other rules", got)
	}
}

// What cannot be a label must not be the end of the process.
func TestOddTiers(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}))
	ask(t, e, 1, headgate.Attributes{"tier": "\xff"})
	ask(t, e, 1, headgate.Attributes{"tier": strings.Repeat("x", maxLength+1)})
	if got := testutil.ToFloat64(m.decisions.of(decided{"check", "allowed", headgate.PathNone, other})); got != 2 {
		t.Errorf("%v of other tiers", got)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	m := New()
	for _, step := range []struct {
		kind          ruledoc.EventKind
		version       string
		good, refused float64
	}{
		{ruledoc.StartedFromKept, "a", 0, 1},
		{ruledoc.Applied, "b", 1, 1},
		{ruledoc.Refused, "b", 0, 2},
		{ruledoc.Recovered, "b", 1, 2},
	} {
		m.Rules(ruledoc.Event{Kind: step.kind, Version: step.version})
		if testutil.ToFloat64(m.rulesGood) != step.good || testutil.ToFloat64(m.rulesRefused) != step.refused ||
			testutil.ToFloat64(m.rulesLoaded) < 1e9 {
			t.Errorf("after %s", step.kind)
		}
		expect(t, m, "headgate_rules_info", `
# HELP headgate_rules_info Version of the rules in use; the value is 1.
# TYPE headgate_rules_info gauge
headgate_rules_info{version="`+step.version+`"} 1
`)
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}), headgate.Rule{ID: "all", Limit: headgate.PerMinute(1)})
	ask(t, e, 2, nil)
	m.Connections("http", func() int64 { return 1 })
	m.Connections("grpc", func() int64 { return 2 })
	m.StoreUp(true)
	m.Rules(ruledoc.Event{Kind: ruledoc.Applied, Version: "a"})
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "headgate_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// Counting takes no memory.
func TestNoAllocation(t *testing.T) {
	m := New()
	d := refusedDecision()
	asked := headgate.Attributes{"tier": "pro"}
	if n := testing.AllocsPerRun(100, func() { m.end(m.begin(), "check", asked, d, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func refusedDecision() *headgate.Decision {
	return &headgate.Decision{
		Path: headgate.PathStore,
		Limits: []headgate.LimitDecision{
			{Rule: "login", Enforced: true}, {Rule: "everything", Enforced: true, Result: headgate.Result{Allowed: true}},
		},
	}
}

func BenchmarkCount(b *testing.B) {
	m := New()
	asked := headgate.Attributes{"tier": "pro", "ip": "192.0.2.1"}
	passed := refusedDecision()
	passed.Allowed, passed.Limits[0].Allowed = true, true
	for name, d := range map[string]*headgate.Decision{"allowed": passed, "refused": refusedDecision()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.end(m.begin(), "check", asked, d, nil)
				}
			})
		})
	}
}
