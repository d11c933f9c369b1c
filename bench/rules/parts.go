package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
)

// matching measures checks that match rules and charge nothing, and the cost of compiling.
func (s bench) matching() {
	all, tenants, usual := rulesOf(mixed), rulesOf(perTenant), requestsOf(func(*request) {})
	var variants []variant
	fmt.Println()
	for i, w := range []struct {
		name     string
		rules    []headgate.Rule
		requests []headgate.Attributes
	}{
		{"mixed: paths, tenants, headers, CIDR, hosts", all, usual},
		{"one path, one rule per tenant", tenants, usual},
		{"one path template with wildcards per rule", rulesOf(perTemplate), requestsOf(toTemplates)},
		{"baseline: one rule that matches all", all[many-1:], usual},
		{"baseline: evaluating each rule (tenants by when)", unindexed(tenants), usual},
	} {
		before, start := paired.Heap(), time.Now()
		limiter := s.limiter(allowAll{}, w.rules...)
		elapsed := time.Since(start)
		if i < 3 {
			fmt.Printf("Compile %d rules, %-44s %4d ms, %4.1f MB in addition to the rules; SetRules %.0f ns\n", many, w.name,
				elapsed.Milliseconds(), (paired.Heap()-before)/1e6, timed(func() { limiter.SetRules(limiter.Rules()) })-timer())
		}
		variants = append(variants, variant{
			name: w.name, limiter: limiter, remark: s.matches(w.rules, w.requests),
			request: func(n int) headgate.Attributes { return w.requests[bare.Spread(0, n)%len(w.requests)] },
		})
	}
	s.measureInTurn(fmt.Sprintf("Matching: Check among %d rules that skip all requests, so that nothing is charged", many), variants)
	for i := range variants[:3] {
		s.expect("match", &variants[i], 2000, 0)
	}
}

// unindexed returns the rules per tenant with conditions that cannot be indexed.
func unindexed(rules []headgate.Rule) []headgate.Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		tenant := name("tenant", i)
		rules[i].Match = headgate.Match{}
		rules[i].When = headgate.Condition{Text: tenant, Holds: func(a headgate.Attributes) bool { return a["tenant"] == tenant }}
	}
	return rules
}

// matches returns how many rules match a request, as text. It counts the charges of the same rules with ShareMissing.
func (s bench) matches(rules []headgate.Rule, requests []headgate.Attributes) string {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].OnMissing = headgate.ShareMissing
	}
	limiter := s.limiter(allowAll{}, rules...)
	sum, maximum := 0, 0
	for _, a := range requests[:1000] {
		d, _ := limiter.Check(context.Background(), headgate.Request{Attributes: a})
		sum, maximum = sum+len(d.Limits), max(maximum, len(d.Limits))
	}
	return fmt.Sprintf("%.1f rules match, at most %d", float64(sum)/1000, maximum)
}

// checks measures whole checks of three limits, by one caller and by two.
func (s bench) checks() {
	const subjects = 100_000
	minute, day := headgate.PerMinute(10_000_000), headgate.PerDay(900_000_000)
	match := headgate.Match{Path: "/checkout/{cart}/**"}
	others := rulesOf(mixed)[:many-8] // without those that match all requests
	three := slices.Concat(others, []headgate.Rule{
		{ID: "by-ip", Match: match, By: []string{"ip"}, Limit: minute},
		{ID: "by-key", Match: match, By: []string{"api_key"}, Limit: minute},
		{ID: "for-all", Match: match, By: headgate.Global, Limit: day},
	})
	limits := map[string]headgate.Limit{"second": headgate.PerSecond(1_000_000), "minute": minute, "day": day}
	one := slices.Concat(others, []headgate.Rule{{ID: "one", Match: match, By: []string{"api_key"}, Limits: limits}})
	ips, keys := make([]string, subjects), make([]string, subjects)
	for i := range subjects {
		ips[i], keys[i] = fmt.Sprintf("203.%d.%d.%d", i>>16, i>>8&255, i&255), headgate.HashKey(name("key", i))
	}
	requests := requestsOf(toCheckout)
	request := func(n int) headgate.Attributes {
		a := requests[n%len(requests)]
		a["ip"], a["api_key"] = ips[bare.Spread(0, n)%subjects], keys[bare.Spread(0, -n)%subjects]
		return a
	}
	variants := []variant{
		{name: "three rules: by ip, by api_key, for all", limiter: s.limiter(memstore.New(memstore.Options{}), three...)},
		{name: "one rule of three limits, by api_key", limiter: s.limiter(memstore.New(memstore.Options{}), one...)},
		{name: "baseline: the three without a store", limiter: s.limiter(allowAll{}, three...)},
	}
	for i := range variants {
		variants[i].request, variants[i].limits = request, 3
		for n := range 3 * subjects { // create most counters before measuring
			_, _ = variants[i].limiter.Check(context.Background(), headgate.Request{Attributes: request(n)})
		}
	}
	s.measureInTurn(fmt.Sprintf("Whole checks with memstore: three limits apply, of %d rules, to each of %d subjects", many, subjects), variants)
	s.expect("Check", &variants[0], 3000, 3)
	s.expect("Check", &variants[1], 3000, 3)
	check := func(caller, n int) error {
		_, err := variants[0].limiter.Check(context.Background(), headgate.Request{Attributes: requests[(2*n+caller)%len(requests)]})
		return err
	}
	callers := []paired.Variant{{Name: "three rules, 1 caller", Callers: 1, Do: check}, {Name: "three rules, 2 callers", Callers: 2, Do: check}}
	s.Measure(fmt.Sprintf("The same with two concurrent callers, %d subjects, attributes not in the cache", len(requests)),
		s.Rounds, s.Slice, callers)
}

// overrides measures the memory and the lookup cost of a million overrides, compared with a limiter without any.
func (s bench) overrides() {
	const million = 1_000_000
	rule := headgate.Rule{ID: "by-key", By: []string{"api_key"}, Limit: headgate.PerMinute(100)}
	without, with := s.limiter(allowAll{}, rule), s.limiter(allowAll{}, rule)
	keys := make([]string, 2*million) // the first half have overrides
	for i := range keys {
		keys[i] = headgate.HashKey(name("key", i))
	}
	before, start := paired.Heap(), time.Now()
	subject := headgate.Attributes{}
	for i := range million {
		subject["api_key"] = keys[i]
		o := headgate.Override{Rule: rule.ID, Subject: subject, Limit: headgate.PerMinute(int64(101 + i)), Reason: name("contract", i%5)}
		if i%2 == 0 {
			o.Expires = start.Add(time.Hour + time.Duration(i)*time.Second)
		}
		testenv.NoError(s, with.Exceptions().Set(o))
	}
	set := time.Since(start)
	bytes := (paired.Heap() - before) / million
	if n, _ := with.Exceptions().Len(); n != million {
		s.Fatalf("%d of %d overrides were kept", n, million)
	}
	a := requestsOf(toCheckout)[0]
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, million-1)
	var variants []variant
	for _, how := range []string{"zipf: ", "uniform: "} {
		from := func(first int) func(int) headgate.Attributes {
			return func(n int) headgate.Attributes {
				if how == "zipf: " {
					n = int(zipf.Uint64())
				}
				a["api_key"] = keys[first+bare.Spread(0, n)%million]
				return a
			}
		}
		variants = append(variants, variant{name: how + "no overrides", limiter: without, request: from(0), limits: 1},
			variant{name: how + "a million, one is the subject's", limiter: with, request: from(0), limits: 1},
			variant{name: how + "a million, none is the subject's", limiter: with, request: from(million), limits: 1})
	}
	s.measureInTurn("Overrides: Check of one limit, subjects drawn from a million by zipf (1.1) or uniformly, a store that does nothing", variants)
	lookup := func(i int) paired.Median { return paired.Difference(variants[i].p50, variants[i/3*3].p50) }
	fmt.Printf("Lookup of uniformly drawn subjects, not in any CPU cache: %.0f ns with an override, %.0f ns without\n",
		lookup(4).Value, lookup(5).Value)
	fmt.Printf("Setting an override: %.1f µs\n", float64(set.Microseconds())/million)
	s.ExpectMaxValue("bytes per override", bytes, 150)
	s.ExpectMax("lookup ns, "+variants[1].name, lookup(1), 300)
	s.ExpectMax("lookup ns, "+variants[2].name, lookup(2), 300)
}

// allowAll is a store that allows every charge at once.
type allowAll struct{}

func (allowAll) Shard(headgate.Subject) int { return 0 }

func (allowAll) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i].Allowed = true
	}
	return nil
}
