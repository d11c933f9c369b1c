package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/regiongrpc"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/ruledoc"
	"github.com/headgate/headgate/storewrap"
)

func newEngine(t testing.TB, store headgate.Store, rules ...headgate.Rule) (*Metrics, *headgate.Limiter) {
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
	m := New("v1.2.3")
	return m, limiter.WithObserver(func(_ context.Context, o *headgate.Observation) { m.Observe(o) })
}

// checkTimes makes the same request several times.
func checkTimes(t *testing.T, e *headgate.Limiter, times int, attributes headgate.Attributes) {
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
	checkTimes(t, e, 3, headgate.Attributes{"path": "/login", "tier": "pro"})
	checkTimes(t, e, 2, headgate.Attributes{"path": "/trial"})
	checkTimes(t, e, 1, headgate.Attributes{"path": "/named"})
	checkTimes(t, e, 1, headgate.Attributes{"path": "/"})
	if err := e.Exceptions().Exempt(headgate.Exemption{Rule: "named", Attribute: "ip", Value: "192.0.2.0/24"}); err != nil {
		t.Fatal(err)
	}
	checkTimes(t, e, 1, headgate.Attributes{"path": "/named", "ip": "192.0.2.1"})
	_, err := e.Cancel(t.Context(), []byte("no token"))
	if err == nil {
		t.Fatal("an invalid token was accepted")
	}
	expect(t, m, "headgate_decisions_total", `
# HELP headgate_decisions_total Decisions, by call, result, path and tier of the request.
# TYPE headgate_decisions_total counter
headgate_decisions_total{call="cancel",path="",result="error",tier=""} 1
headgate_decisions_total{call="check",path="exempt",result="allowed",tier=""} 1
headgate_decisions_total{call="check",path="none",result="allowed",tier=""} 1
headgate_decisions_total{call="check",path="rules",result="denied",tier=""} 1
headgate_decisions_total{call="check",path="store",result="allowed",tier=""} 2
headgate_decisions_total{call="check",path="store",result="allowed",tier="pro"} 2
headgate_decisions_total{call="check",path="store",result="denied",tier="pro"} 1
`)
	// A rule counts once per request, regardless of how many of its limits are exceeded.
	expect(t, m, "headgate_rule_decisions_total", `
# HELP headgate_rule_decisions_total Requests that a rule applied to, by tier, result (would_deny is a denial in shadow mode) and path.
# TYPE headgate_rule_decisions_total counter
headgate_rule_decisions_total{path="exempt",result="allowed",rule="named",tier=""} 1
headgate_rule_decisions_total{path="rules",result="denied",rule="named",tier=""} 1
headgate_rule_decisions_total{path="store",result="allowed",rule="later",tier="pro"} 1
headgate_rule_decisions_total{path="store",result="allowed",rule="login",tier="pro"} 2
headgate_rule_decisions_total{path="store",result="allowed",rule="trial",tier=""} 2
headgate_rule_decisions_total{path="store",result="denied",rule="login",tier="pro"} 1
headgate_rule_decisions_total{path="store",result="would_deny",rule="later",tier="pro"} 2
`)
	expect(t, m, "headgate_rule_candidate_denials_total", `
# HELP headgate_rule_candidate_denials_total Requests over the candidate limit of a rule.
# TYPE headgate_rule_candidate_denials_total counter
headgate_rule_candidate_denials_total{rule="trial"} 1
`)
	// Two limits for each allowed request, in login and in trial.
	expect(t, m, "headgate_admitted_units_total", `
# HELP headgate_admitted_units_total Units admitted, for each enforced limit that was charged.
# TYPE headgate_admitted_units_total counter
headgate_admitted_units_total 8
`)
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if !strings.Contains(recorder.Body.String(), "\nheadgate_check_duration_seconds_count 9\n") {
		t.Error(recorder.Body.String())
	}
}

// TestCheckAll checks that each request of a batch is counted, and its duration once.
func TestCheckAll(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}))
	if _, err := e.CheckAll(t.Context(), []headgate.BatchRequest{{}, {}, {Peek: true}, {Credit: true}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CheckAll(t.Context(), []headgate.BatchRequest{{Request: headgate.Request{Rule: "none"}}}); err == nil {
		t.Error("no error for an unknown rule")
	}
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`call="check",path="none",result="allowed",tier=""} 2`, `call="peek",path="none",result="allowed",tier=""} 1`,
		`call="refund",path="none",result="allowed",tier=""} 1`, `call="check",path="",result="error",tier=""} 1`,
		"headgate_check_duration_seconds_count 2\n",
	} {
		if !strings.Contains(recorder.Body.String(), want) {
			t.Errorf("%s is not in\n%s", want, recorder.Body)
		}
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	m := New("")
	err := m.Stream(nil, nil, nil, func(any, grpc.ServerStream) error {
		if m.streams.Load() != 1 {
			t.Errorf("%d streams", m.streams.Load())
		}
		return errors.New("broken")
	})
	if err == nil || m.streams.Load() != 0 {
		t.Errorf("%d streams: %v", m.streams.Load(), err)
	}
}

// TestBounds checks that the number of series is bounded for any rules and tiers.
func TestBounds(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}))
	for i := range maxTiers {
		checkTimes(t, e, 1, headgate.Attributes{"tier": fmt.Sprint("tier-", i)})
	}
	checkTimes(t, e, 2, headgate.Attributes{"tier": "one-too-many"})
	checkTimes(t, e, 1, headgate.Attributes{"tier": "tier-0"})
	if n := testutil.CollectAndCount(m.decisions.all); n != maxTiers+1 {
		t.Errorf("%d series", n)
	}
	for tier, want := range map[string]float64{other: 2, "tier-0": 2, "tier-99": 1} {
		if got := testutil.ToFloat64(m.decisions.all.WithLabelValues("check", "allowed", string(headgate.PathNone), tier)); got != want {
			t.Errorf("tier %s: %v, not %v", tier, got, want)
		}
	}
	deny := func(rule, tier string) {
		limits := []headgate.LimitDecision{{Rule: rule, Enforced: true}}
		m.Observe(&headgate.Observation{
			Call: headgate.CallCheck, Attributes: headgate.Attributes{"tier": tier},
			Decision: headgate.Decision{Limits: limits, Exempt: []string{rule}},
		})
	}
	for i := range maxRules + 7 { // the tier is over the limit, too
		deny(strconv.Itoa(i), "")
	}
	denials := func(rule, tier string) float64 {
		return testutil.ToFloat64(m.decisions.byRule.WithLabelValues(rule, tier, "denied", string(headgate.PathStore)))
	}
	if got := denials(other, other); got != 7 {
		t.Errorf("%v denials by other rules", got)
	}
	for i := range maxRules { // too many combinations of rule and tier
		for tier := range 10 {
			deny(strconv.Itoa(i), fmt.Sprint("tier-", tier))
		}
	}
	series := testutil.CollectAndCount(m.registry, "headgate_rule_decisions_total")
	if rest := denials(other, other); series < maxSeries || series > maxSeries+2 || rest < 1_000 || denials("7", other) != 1 {
		t.Errorf("%d series, %v denials by the rest", series, rest)
	}
	// Every decision is counted in some series.
	total := 0.
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			denied := func(l *dto.LabelPair) bool { return l.GetValue() == "denied" }
			if family.GetName() == "headgate_rule_decisions_total" && slices.ContainsFunc(metric.GetLabel(), denied) {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	if want := float64(maxRules + 7 + 10*maxRules); total != want {
		t.Errorf("%v denials counted, not %v", total, want)
	}
}

// TestConcurrentNames adds rules, tiers and candidates concurrently.
// TestSkipped checks that requests are counted that a concurrency limit was not applied to, except those that charge nothing.
func TestSkipped(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}), headgate.Rule{ID: "exports", Limit: headgate.Concurrent(1)})
	checkTimes(t, e, 2, headgate.Attributes{})
	if _, err := e.Peek(t.Context(), headgate.Request{}); err != nil {
		t.Error(err)
	}
	if _, err := e.Refund(t.Context(), headgate.Request{}); err != nil {
		t.Error(err)
	}
	d, err := e.Begin(t.Context(), headgate.Request{})
	if err != nil || !d.Holds() {
		t.Errorf("%+v: %v", d, err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	expect(t, m, "headgate_limits_skipped_total", `
# HELP headgate_limits_skipped_total Requests that the concurrency limit of a rule was not applied to, because their end is not reported.
# TYPE headgate_limits_skipped_total counter
headgate_limits_skipped_total{rule="exports"} 2
`)
}

func TestConcurrentNames(t *testing.T) {
	t.Parallel()
	m := New("")
	var wg sync.WaitGroup
	for caller := range 4 {
		wg.Go(func() {
			for i := range 50 {
				rule := fmt.Sprint("rule-", caller, "-", i)
				candidate := headgate.LimitDecision{Rule: rule, Origin: headgate.FromCandidate}
				m.Observe(&headgate.Observation{
					Call: headgate.CallCheck, Attributes: headgate.Attributes{"tier": fmt.Sprint("tier-", caller, "-", i%25)},
					Decision: headgate.Decision{Limits: []headgate.LimitDecision{{Rule: rule, Enforced: true}, candidate}},
				})
			}
		})
	}
	wg.Wait()
	for _, name := range []string{"headgate_rule_decisions_total", "headgate_rule_candidate_denials_total"} {
		if n := testutil.CollectAndCount(m.registry, name); n != 200 {
			t.Errorf("%d series of %s", n, name)
		}
	}
}

// TestInvalidTiers checks that invalid label values are counted as other.
func TestInvalidTiers(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}))
	checkTimes(t, e, 1, headgate.Attributes{"tier": "\xff"})
	checkTimes(t, e, 1, headgate.Attributes{"tier": strings.Repeat("x", maxLength+1)})
	if got := testutil.ToFloat64(m.decisions.all.WithLabelValues("check", "allowed", string(headgate.PathNone), other)); got != 2 {
		t.Errorf("%v of other tiers", got)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	m := New("")
	for _, step := range []struct {
		kind           ruledoc.EventKind
		version        string
		good, failures float64
	}{
		{ruledoc.StartedFromLastGood, "a", 0, 1},
		{ruledoc.Applied, "b", 1, 1},
		{ruledoc.Rejected, "b", 0, 2},
		{ruledoc.Recovered, "b", 1, 2},
	} {
		m.Rules(ruledoc.Event{Kind: step.kind, Version: step.version})
		if testutil.ToFloat64(m.rules.good) != step.good || testutil.ToFloat64(m.rules.failures) != step.failures ||
			testutil.ToFloat64(m.rules.loaded) < 1e9 {
			t.Errorf("after %s", step.kind)
		}
		expect(t, m, "headgate_rules_info", `
# HELP headgate_rules_info Version of the rules in use; the value is always 1.
# TYPE headgate_rules_info gauge
headgate_rules_info{version="`+step.version+`"} 1
`)
	}
}

// TestLimits checks the limits of the rules in use, and that their number is bounded.
func TestLimits(t *testing.T) {
	t.Parallel()
	day := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 500, Calendar: headgate.Day}
	m, e := newEngine(t, memstore.New(memstore.Options{}), headgate.Rule{
		ID: "search", Limits: map[string]headgate.Limit{"day": day, "minute": headgate.PerMinute(10)},
	}, headgate.Rule{ID: "all", Limit: headgate.PerSecond(100)})
	m.Limits(e.Rules)
	expect(t, m, "headgate_rule_limit", `
# HELP headgate_rule_limit Units that a limit of a rule allows per window, without tiers and overrides.
# TYPE headgate_rule_limit gauge
headgate_rule_limit{limit="",rule="all"} 100
headgate_rule_limit{limit="day",rule="search"} 500
headgate_rule_limit{limit="minute",rule="search"} 10
`)
	expect(t, m, "headgate_rule_limit_window_seconds", `
# HELP headgate_rule_limit_window_seconds Window of a limit of a rule, except calendar windows and concurrency limits.
# TYPE headgate_rule_limit_window_seconds gauge
headgate_rule_limit_window_seconds{limit="",rule="all"} 1
headgate_rule_limit_window_seconds{limit="minute",rule="search"} 60
`)
	many := make([]headgate.Rule, maxRules+1)
	for i := range many {
		many[i] = headgate.Rule{ID: fmt.Sprint("r", i), Match: headgate.Match{Method: "GET"}, By: []string{}, Limit: headgate.PerSecond(1)}
	}
	set, err := headgate.Compile(many...)
	if err != nil {
		t.Fatal(err)
	}
	e.SetRules(set)
	if n := testutil.CollectAndCount(m.registry, "headgate_rule_limit"); n != maxRules {
		t.Errorf("%d limits", n)
	}
}

// TestReplaced checks that replaced and restarted primaries are counted, and missing ones are not.
func TestReplaced(t *testing.T) {
	t.Parallel()
	m := New("")
	for _, step := range []struct {
		servers           map[string]int64
		replaced, evicted float64
	}{
		{nil, 0, 0},
		{map[string]int64{"a": 7, "b": 0}, 0, 0}, // evictions before our start do not count
		{map[string]int64{"a": 9}, 0, 2},
		{map[string]int64{"a": 9, "b": 1}, 0, 3},
		{map[string]int64{"a": 9, "c": 5}, 1, 8},
		{map[string]int64{"d": 0, "e": 0}, 3, 8},
	} {
		m.StoreServers(step.servers)
		replaced, evicted := testutil.ToFloat64(m.store.replaced), testutil.ToFloat64(m.store.evicted)
		if replaced != step.replaced || evicted != step.evicted {
			t.Errorf("after %v: %v replaced, %v evicted", step.servers, replaced, evicted)
		}
	}
}

// TestStore checks that every field of the statistics is exported under its own name.
func TestStore(t *testing.T) {
	t.Parallel()
	m := New("")
	m.Store(func() storewrap.Stats {
		return storewrap.Stats{
			ShardsUnavailable: 2, CircuitOpened: 3, Errors: storewrap.Errors{Unavailable: 4, Unanswered: 5, CircuitOpen: 6, Rejected: 7},
			PendingCounters: 8, Charged: 9, OverLimit: 10, Unanswered: 11, Rejected: 12, Leases: 13, Leased: 14, Returned: 15, LeaseLost: 16,
			FalseDenials: 17, CacheEvicted: 18, LedgerEvicted: 19, InFlight: 20,
		}
	})
	m.Nodes(func() int { return 1 })
	text := shown(t, m)
	for i, name := range []string{
		"nodes", "store_shards_unavailable", "store_circuit_opened_total", `store_errors_total{kind="unavailable"}`,
		`store_errors_total{kind="unanswered"}`, `store_errors_total{kind="circuit_open"}`, `store_errors_total{kind="rejected"}`,
		"local_counters_pending", "local_units_charged_total", "local_units_over_limit_total", "store_unanswered_total",
		"store_calls_rejected_total", "leases", "lease_units_taken_total", "lease_units_returned_total", "lease_units_lost_total",
		"false_denials_total", `evictions_total{of="cache"}`, `evictions_total{of="local"}`, "store_calls_in_flight",
	} {
		if want := fmt.Sprintf("\nheadgate_%s %d\n", name, i+1); !strings.Contains(text, want) {
			t.Errorf("missing%s", want)
		}
	}
}

func shown(t *testing.T, m *Metrics) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return recorder.Body.String()
}

func TestLint(t *testing.T) {
	t.Parallel()
	m, e := newEngine(t, memstore.New(memstore.Options{}), headgate.Rule{ID: "all", Limit: headgate.PerMinute(1)})
	checkTimes(t, e, 2, nil)
	zero := func() int64 { return 0 }
	m.Connections("http", zero)
	m.Connections("grpc", zero)
	m.UsageLost(zero)
	m.DenialsUnrecorded(zero)
	m.StoreUp(true)
	m.StoreCall(time.Millisecond)
	m.Store(func() storewrap.Stats { return storewrap.Stats{} })
	m.Limits(e.Rules)
	m.Rules(ruledoc.Event{Kind: ruledoc.Applied, Version: "a"})
	m.RulesChecked(time.Now)
	m.Regions(func() region.Stats { return region.Stats{} }, func() []regiongrpc.State { return []regiongrpc.State{{Peer: "us"}} })
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

func TestNoAllocation(t *testing.T) {
	m := New("")
	for name, o := range observations() {
		if n := testing.AllocsPerRun(100, func() { m.Observe(o) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// observations returns observations of allowed and denied requests with one and three rules.
func observations() map[string]*headgate.Observation {
	all := map[string]*headgate.Observation{}
	for _, rules := range []int{1, 3} {
		for _, pass := range []bool{true, false} {
			o := &headgate.Observation{
				Call: headgate.CallCheck, Attributes: headgate.Attributes{"tier": "pro", "ip": "192.0.2.1"}, Duration: 100 * time.Microsecond,
				Decision: headgate.Decision{Allowed: pass, Path: headgate.PathLease},
			}
			for i := range rules {
				l := headgate.LimitDecision{Rule: fmt.Sprint("rule-", i), Enforced: true, Cost: 1}
				l.Allowed, l.Path = pass, headgate.PathLease
				o.Decision.Limits = append(o.Decision.Limits, l)
			}
			name := map[bool]string{true: "allowed", false: "denied"}[pass]
			all[fmt.Sprintf("%s by %d", name, rules)] = o
		}
	}
	return all
}

func BenchmarkNote(b *testing.B) {
	m := New("")
	for name, o := range observations() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Observe(o)
			}
		})
	}
}
