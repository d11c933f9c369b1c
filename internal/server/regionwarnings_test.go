package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/ruledoc"
)

var threeRegions = config.Regions{
	Name:    "eu",
	Members: []config.RegionMember{{Name: "ap", Weight: 1}, {Name: "eu", Weight: 2}, {Name: "us", Weight: 2}},
}

// sharedRule compiles a shared rule with one counter for all requests and these further keys in YAML.
func sharedRule(t *testing.T, keys string) *headgate.RuleSet {
	t.Helper()
	d, err := ruledoc.Parse("rules.yaml", []byte("rules:\n  - {id: x, by: [], regions: shared, "+keys+"}\n"))
	testenv.NoError(t, err)
	return d.Rules
}

func TestRegionWarnings(t *testing.T) {
	t.Parallel()
	fixed := func(rate string) string { return "limit: {rate: " + rate + ", algorithm: fixed_window}" }
	tests := []struct {
		rule string
		want []string // without the rule
	}{
		{fixed("1000/minute"), nil},
		{"limit: {rate: 1000/minute, algorithm: sliding_window}", nil},
		{"limit: 1000/minute", nil},
		{"limit: 1000/second", nil},
		{"mode: off, " + fixed("10/minute"), nil},
		{
			fixed("10/minute"),
			[]string{"limit 10/minute, fixed_window: region ap has a share of 2 of 10 units, which is too small to lend and borrow; " + smallShareRemedy},
		},
		{
			"limit: 100/second",
			[]string{"limit 100/second: region ap has a share of 12 of 100 units, which is too small to lend and borrow; " + smallShareRemedy},
		},
		{
			fixed("1000/minute") + ", tiers: {free: 20/minute}, candidate: 30/minute",
			[]string{
				"tier free, limit 20/minute, fixed_window: region ap has a share of 4 of 20 units, which is too small to lend and borrow; " + smallShareRemedy,
				"candidate limit 30/minute, fixed_window: region ap has a share of 6 of 30 units, which is too small to lend and borrow; " + smallShareRemedy,
			},
		},
		{
			"limits: {month: {quota: 50, calendar: month}}",
			[]string{"limit month 50/month in UTC: region ap has a share of 10 of 50 units, which is too small to lend and borrow; " + smallShareRemedy},
		},
		{
			fixed("3/minute"),
			[]string{"limit 3/minute, fixed_window: region ap has a share of 0 of 3 units, so that every request is denied there; " + smallShareRemedy},
		},
		{
			fixed("1000/minute") + ", candidate: 1/minute",
			[]string{
				"candidate limit 1/minute, fixed_window: regions ap and eu have a share of 0 of 1 units, so that every request would be denied there; " +
					smallShareRemedy,
			},
		},
		{
			"limit: {rate: 1000/second, burst: 700}",
			[]string{
				"limit 1000/second, burst 700: its burst refills in 700ms, and shares leave out what refills in 400ms: " +
					"region ap has a share of 60 of 700 units; raise the burst",
			},
		},
		{
			"limit: {rate: 1000/second, burst: 400}",
			[]string{
				"limit 1000/second, burst 400: regions ap, eu and us have a share of 0 of 400 units, so that every request is denied there; " +
					"shares of its burst leave out what refills in 400ms; raise the burst",
			},
		},
		{
			"limit: {rate: 100/minute, algorithm: leaky_bucket}",
			[]string{
				"limit 100/minute, leaky_bucket: leaky_bucket is split and not lent: region ap has a share of 20 of 100 units, whatever the others use; " +
					"use token_bucket for units that can be lent, or write regions: home",
			},
		},
		{
			"limit: {rate: 1000/minute, algorithm: sliding_log}",
			[]string{
				"limit 1000/minute, sliding_log: sliding_log is split and not lent: region ap has a share of 200 of 1,000 units, whatever the others use; " +
					"use sliding_window for units that can be lent, or write regions: home",
			},
		},
		{
			"limit: 100 concurrent",
			[]string{
				"limit 100 concurrent: concurrency is split and not lent: region ap has a share of 20 of 100 units, whatever the others use; " +
					"choose the weights of the regions by their load",
			},
		},
		{
			"cost: 201, " + fixed("1000/minute"),
			[]string{
				"limit 1000/minute, fixed_window: region ap has a share of 200 of 1,000 units: requests with a cost of 201 are always denied there; " +
					"raise the limit, or lower the cost",
			},
		},
		{
			"costs: [{match: {path: /export}, cost: 300}], " + fixed("1000/minute"),
			[]string{
				"limit 1000/minute, fixed_window: region ap has a share of 200 of 1,000 units: requests with a cost of 300 are always denied there; " +
					"raise the limit, or lower the cost",
			},
		},
		{"cost: 200, " + fixed("1000/minute"), nil},
		{"cost: 201, overdraw: true, " + fixed("1000/minute"), nil},
		{"cost: 201, " + fixed("2000/minute") + ", candidate: 1000/minute", nil},
	}
	for _, test := range tests {
		var got []string
		for _, w := range RegionWarnings(sharedRule(t, test.rule), &threeRegions) {
			if denies := strings.Contains(w.Problem, "every request is denied"); w.Denies != denies {
				t.Errorf("%s: denies is %v: %s", test.rule, w.Denies, w)
			}
			got = append(got, strings.TrimPrefix(w.String(), `rule "x", `))
		}
		if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("%s\ngot\n%s\nwant\n%s", test.rule, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// TestRegionWarningsOfCosts checks that the costs of rules that charge the counters of another one count.
func TestRegionWarningsOfCosts(t *testing.T) {
	t.Parallel()
	rules, err := headgate.Compile(
		headgate.Rule{ID: "a", By: headgate.Global, Limit: headgate.PerHour(1000), Regions: headgate.SharedRegions},
		headgate.Rule{ID: "b", Counter: "a", Cost: headgate.Cost{Default: 500}},
		headgate.Rule{ID: "c", Counter: "a", Cost: headgate.Cost{Default: 600}, Mode: headgate.Off},
	)
	testenv.NoError(t, err)
	got := RegionWarnings(rules, &threeRegions)
	if len(got) != 1 || got[0].Rule != "a" || !strings.Contains(got[0].Problem, "cost of 500 are always denied") {
		t.Errorf("%v", got)
	}
}

func TestRegionWarningsWithoutRegions(t *testing.T) {
	t.Parallel()
	rules, err := headgate.Compile(
		headgate.Rule{ID: "a", By: headgate.Global, Limit: headgate.PerHour(1), Regions: headgate.SharedRegions},
		headgate.Rule{ID: "b", By: headgate.Global, Limit: headgate.PerHour(1)},
		headgate.Rule{ID: "c", By: headgate.Global, Limit: headgate.PerHour(1), Regions: headgate.HomeRegion},
	)
	testenv.NoError(t, err)
	if got := RegionWarnings(rules, &threeRegions); len(got) != 1 || got[0].Rule != "a" {
		t.Errorf("with regions: %v", got)
	}
	got := RegionWarnings(rules, &config.Regions{})
	want := `rule "a": regions: shared, but the config has no regions: counted in this region only; add regions to the config, or write regions: each`
	if len(got) != 2 || got[0].String() != want || got[0].Denies || !strings.HasPrefix(got[1].String(), `rule "c": regions: home, but the config has no regions`) {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestSmallShareRemedy checks that warnings recommend regions: home if and only if rules may have it.
func TestSmallShareRemedy(t *testing.T) {
	t.Parallel()
	_, err := headgate.Compile(headgate.Rule{ID: "a", By: headgate.Global, Limit: headgate.PerHour(1), Regions: headgate.HomeRegion})
	if strings.Contains(smallShareRemedy, "home") != (err == nil) {
		t.Errorf("remedy %q, but the error of regions: home is %v", smallShareRemedy, err)
	}
}

// TestWarnOfRegions checks that a server logs the warnings of a version of its rules once, and not without limit.
func TestWarnOfRegions(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	rules := sharedRule(t, "limit: {rate: 3/minute, algorithm: fixed_window}, limits: {a: {rate: 10/minute, algorithm: fixed_window}}")
	s := &server{
		Options: Options{Log: slog.New(slog.NewTextHandler(&b, nil))}, config: &config.Config{Regions: threeRegions},
		limiter: headgate.NewLimiter(memstore.New(memstore.Options{}), rules, headgate.Options{}),
	}
	s.warnOfRegions(t.Context())
	s.warnOfRegions(t.Context())
	if text := b.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "level=WARN") ||
		!strings.Contains(text, "rule=x") || !strings.Contains(text, `limit="limit a 10/minute, fixed_window"`) ||
		!strings.Contains(text, `problem="region ap has a share of 2 of 10 units`) {
		t.Errorf("logged:\n%s", text)
	}
	b.Reset()
	many := map[string]headgate.Limit{}
	for i := range maxLoggedWarnings + 5 {
		many[string(rune('a'+i))] = headgate.PerHour(10)
	}
	rules, err := headgate.Compile(headgate.Rule{ID: "many", By: headgate.Global, Limits: many, Regions: headgate.SharedRegions})
	testenv.NoError(t, err)
	s.limiter.SetRules(rules)
	s.warnOfRegions(t.Context())
	if text := b.String(); strings.Count(text, "\n") != maxLoggedWarnings+1 || !strings.Contains(text, "more=5") {
		t.Errorf("logged:\n%s", text)
	}
}
