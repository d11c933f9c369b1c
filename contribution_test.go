package headgate_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// units returns a rule by user and two rules that charge its counters at higher costs.
func units(change ...func(*headgate.Rule)) []headgate.Rule {
	rules := []headgate.Rule{
		{ID: "reports", Match: headgate.Match{Path: "/*/reports/**"}, Counter: "units", Cost: headgate.Cost{Default: 10}},
		{ID: "units", Match: headgate.Match{Path: "/api/**"}, By: []string{"user"}, Limit: window(100)},
		{
			ID: "ai", Match: headgate.Match{Path: "/**", Attributes: map[string]headgate.Pattern{"tenant": headgate.OneOf("ai")}}, Counter: "units",
			Cost: headgate.Cost{Default: 3}, Costs: []headgate.CostEntry{{Match: headgate.Match{Method: "POST"}, Cost: 50}},
		},
	}
	for i, f := range change {
		if f != nil {
			f(&rules[i])
		}
	}
	return rules
}

// charged returns the rules and costs of a decision: "units 10".
func charged(d headgate.Decision) string {
	var all []string
	for _, l := range d.Limits {
		all = append(all, l.Rule+" "+strconv.FormatInt(l.Cost, 10))
	}
	return strings.Join(all, ", ")
}

func TestCounter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rules   []headgate.Rule
		request string
		by      string
		cost    int64
		want    string
	}{
		"the rule alone":                {request: "path=/api/x", want: "units 1"},
		"another rule alone":            {request: "path=/web/reports/x", want: "units 10"},
		"both rules":                    {request: "path=/api/reports/x", want: "units 10"},
		"two others":                    {request: "path=/web/reports/x tenant=ai", want: "units 10"},
		"all, by a cost table":          {request: "path=/api/reports/x tenant=ai method=POST", want: "units 50"},
		"another reading of the path":   {request: "path=/api/x " + headgate.OtherPath + "=/y?/web/reports", want: "units 10"},
		"another reading of the method": {request: "path=/api/x tenant=ai method=GET " + headgate.OtherMethod + "=" + headgate.AnyMethod, want: "units 50"},
		"no rule":                       {request: "path=/web/x", want: ""},
		"by ID":                         {request: "path=/api/reports/x", by: "units", want: "units 1"},
		"another rule by ID":            {request: "path=/api/x", by: "reports", want: "units 10"},
		"a cost table by ID":            {request: "path=/api/reports/x method=POST", by: "ai", want: "units 50"},
		"the caller's cost multiplies":  {request: "path=/api/reports/x", cost: 3, want: "units 30"},
		"the caller's cost replaces one of the costs": {
			rules: units(func(r *headgate.Rule) { r.Cost.Max = 90 }), request: "path=/api/reports/x", cost: 40, want: "units 40",
		},
		"the highest cost is that of the rule itself": {
			rules: units(nil, func(r *headgate.Rule) { r.Cost.Default = 20 }), request: "path=/api/reports/x", want: "units 20",
		},
		"an attribute has the cost": {
			rules: units(nil, func(r *headgate.Rule) { r.Cost.From = "header.x-cost" }), request: "path=/api/reports/x header.x-cost=12", want: "units 12",
		},
		"a rule is off": {
			rules: units(func(r *headgate.Rule) { r.Mode = headgate.Off }), request: "path=/api/reports/x", want: "units 1",
		},
		"a rule is off, by ID": {
			rules: units(func(r *headgate.Rule) { r.Mode = headgate.Off }), request: "path=/api/reports/x", by: "reports", want: "",
		},
		"the rule is off": {
			rules: units(nil, func(r *headgate.Rule) { r.Mode = headgate.Off }), request: "path=/api/reports/x", want: "",
		},
		"the rule is off, another by ID": {
			rules: units(nil, func(r *headgate.Rule) { r.Mode = headgate.Off }), request: "path=/api/reports/x", by: "reports", want: "",
		},
		"several limits": {
			rules: units(nil, func(r *headgate.Rule) {
				r.Limits, r.Candidate.Limit = map[string]headgate.Limit{"daily": headgate.PerDay(500)}, headgate.PerMinute(200)
			}),
			request: "path=/api/reports/x", want: "units 10, units 10, units 10",
		},
		"the attribute is missing": {
			rules: units(nil, func(r *headgate.Rule) { r.By, r.OnMissing = []string{"tenant"}, headgate.SkipMissing }), request: "path=/web/reports/x", want: "",
		},
		"the priority is that of the rule": {
			rules: append(
				units(nil, func(r *headgate.Rule) { r.Priority = 1 }),
				rule(func(r *headgate.Rule) { r.Priority, r.Match.Method = 2, "PUT" }),
			),
			request: "path=/web/reports/x method=PUT", want: "r 1",
		},
		"the charges are in the order of the rules that have the counters": {
			rules:   append([]headgate.Rule{{ID: "first", Counter: "last"}}, append(units(), rule(func(r *headgate.Rule) { r.ID, r.Mode = "last", headgate.Shadow }))...),
			request: "path=/api/reports/x", want: "units 10, last 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.rules == nil {
				test.rules = units()
			}
			w := newWorld(t, test.rules...)
			req := headgate.Request{Attributes: parseAttributes("user=ann " + test.request), Rule: test.by, Cost: test.cost}
			d, err := w.Check(t.Context(), req)
			if err != nil || charged(d) != test.want {
				t.Errorf("charged %q, want %q; error %v", charged(d), test.want, err)
			}
			if all, err := w.CheckAll(t.Context(), []headgate.BatchRequest{{Request: req}, {Request: req, Peek: true}}); err != nil || charged(all[0]) != test.want {
				t.Errorf("CheckAll: %+v: %v", all, err)
			}
			if d, err := w.Refund(t.Context(), req); err != nil || charged(d) != test.want {
				t.Errorf("refunded %q, want %q; error %v", charged(d), test.want, err)
			}
		})
	}
	if compile(t, units()...).Version() == compile(t, units(func(r *headgate.Rule) { r.Counter, r.By, r.Limit = "", []string{"user"}, window(100) })...).Version() {
		t.Error("Counter does not change the version")
	}
}

// TestCounterIsShared charges one counter through three rules.
func TestCounterIsShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, units(nil, func(r *headgate.Rule) { r.Meter = true })...)
	for _, step := range []struct {
		request string
		left    int64
		allowed bool
	}{
		{"path=/api/x", 99, true},
		{"path=/web/reports/x", 89, true},
		{"path=/api/x tenant=ai method=POST", 39, true},
		{"path=/api/x tenant=ai method=POST", 39, false},
		{"path=/api/reports/x", 29, true},
	} {
		d := w.check("user=ann " + step.request)
		if l := d.Limits[0]; d.Allowed != step.allowed || l.Remaining != step.left || !l.Metered {
			t.Errorf("%s: allowed %t, %d left, want %t, %d", step.request, d.Allowed, l.Remaining, step.allowed, step.left)
		}
	}
	if err := w.Exceptions().Set(headgate.Override{Rule: "units", Subject: headgate.Attributes{"user": "ann"}, Limit: window(200)}); err != nil {
		t.Fatal(err)
	}
	if d := w.check("user=ann path=/web/reports/x"); d.Limits[0].Remaining != 119 || d.Limits[0].Origin != headgate.FromOverride {
		t.Errorf("with an override: %+v", d)
	}
}

// TestCounterExemptions checks that an exemption from the rule that has the counters exempts from all charges on them, and that an
// exemption from a rule that charges them only removes its cost.
func TestCounterExemptions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rule, request, want string
		exempt              []string
	}{
		{"units", "path=/api/reports/x", "", []string{"reports", "units"}},
		{"units", "path=/web/reports/x", "", []string{"reports"}},
		{"reports", "path=/api/reports/x", "units 1", []string{"reports"}},
		{"reports", "path=/web/reports/x", "", []string{"reports"}},
		{"", "path=/api/reports/x", "", []string{"reports", "units"}},
	} {
		w := newWorld(t, units()...)
		if err := w.Exceptions().Exempt(headgate.Exemption{Rule: test.rule, Attribute: "user", Value: "ann"}); err != nil {
			t.Fatal(err)
		}
		d := w.check("user=ann " + test.request)
		if charged(d) != test.want || !slices.Equal(d.Exempt, test.exempt) || (d.Path == headgate.PathExempt) != (test.want == "") {
			t.Errorf("exempt from %q, %s: %+v", test.rule, test.request, d)
		}
	}
}

func TestCounterExplained(t *testing.T) {
	t.Parallel()
	explain := func(request string, rules []headgate.Rule, exempt ...headgate.Exemption) map[string]string {
		w := newWorld(t, rules...)
		if err := w.Exceptions().Replace(nil, each(exempt)); err != nil {
			t.Fatal(err)
		}
		e, err := w.Explain(t.Context(), headgate.Request{Attributes: parseAttributes("user=ann " + request)})
		if err != nil {
			t.Fatal(err)
		}
		why := map[string]string{}
		for _, r := range e.Rules {
			why[r.Rule.ID] = fmt.Sprintf("%t %v: %s", r.Applies, r.Subject, r.Why)
		}
		return why
	}
	const counts, charges = "true map[user:ann]: ", `charges the counters of rule "units"`
	for name, test := range map[string]struct{ got, want map[string]string }{
		"highest": {explain("path=/api/reports/x", units()), map[string]string{
			"reports": counts + charges,
			"units":   counts + `charged at the cost of rule "reports": 10 instead of 1`,
			"ai":      "false map[]: the request has no tenant",
		}},
		"lower": {explain("path=/web/reports/x tenant=ai", units()), map[string]string{
			"reports": counts + charges,
			"units":   "false map[]: path is /web/reports/x, not /api/**",
			"ai":      counts + charges + `; charged at the cost of rule "reports": 10 instead of 3`,
		}},
		"shadow": {explain("path=/web/reports/x", units(nil, func(r *headgate.Rule) { r.Mode = headgate.Shadow })), map[string]string{
			"reports": counts + charges + "; shadow",
			"units":   "false map[]: path is /web/reports/x, not /api/**",
			"ai":      "false map[]: the request has no tenant",
		}},
		"off": {explain("path=/web/reports/x", units(nil, func(r *headgate.Rule) { r.Mode = headgate.Off })), map[string]string{
			"reports": "false map[]: " + charges + ", whose mode is off",
			"units":   "false map[]: mode is off",
			"ai":      "false map[]: " + charges + ", whose mode is off",
		}},
		"exempt": {
			explain("path=/web/reports/x tenant=ai", units(),
				headgate.Exemption{Rule: "units", Attribute: "user", Value: "ann"}, headgate.Exemption{Rule: "ai", Attribute: "user", Value: "ann"}),
			map[string]string{
				"reports": `false map[]: exempt by user from rule "units", whose counters it charges`,
				"units":   "false map[]: path is /web/reports/x, not /api/**",
				"ai":      "false map[]: exempt by user",
			},
		},
		"skipped": {
			explain("path=/web/reports/x", units(nil, func(r *headgate.Rule) { r.By, r.OnMissing = []string{"tenant"}, headgate.SkipMissing })),
			map[string]string{
				"reports": "false map[]: the request has no tenant, and on_missing is skip",
				"units":   "false map[]: path is /web/reports/x, not /api/**",
				"ai":      "false map[]: the request has no tenant",
			},
		},
		"displaced": {
			explain("path=/web/reports/x", append(units(nil, func(r *headgate.Rule) { r.Priority = 1 }), rule(func(r *headgate.Rule) { r.Priority = 2 }))),
			map[string]string{
				"reports": `false map[]: displaced by rule "r": its priority 2 is above 1 and it counts by the same attributes`,
				"units":   "false map[]: path is /web/reports/x, not /api/**",
				"ai":      "false map[]: the request has no tenant",
				"r":       counts,
			},
		},
	} {
		if !maps.Equal(test.got, test.want) {
			t.Errorf("%s: %q, want %q", name, test.got, test.want)
		}
	}
}

// TestCounterReservations commits reservations whose cost one rule supplies and another bounds.
func TestCounterReservations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rules    []headgate.Rule
		request  string
		cost     int64
		reserved int64
		actual   headgate.Request
		charged  int64
	}{
		"the cost of another rule": {request: "path=/web/reports/x", reserved: 10, actual: headgate.Request{Cost: 2}, charged: 20},
		"the bounds of another rule": {
			rules:   units(func(r *headgate.Rule) { r.Cost = headgate.Cost{Min: 5, Max: 60} }),
			request: "path=/web/reports/x", cost: 30, reserved: 30, actual: headgate.Request{Cost: 1}, charged: 5,
		},
		"the highest of the actual costs": {
			rules: units(nil, func(r *headgate.Rule) { r.Cost.From = "header.x-cost" }), request: "path=/api/reports/x header.x-cost=2",
			reserved: 10, actual: headgate.Request{Attributes: headgate.Attributes{"header.x-cost": "70"}}, charged: 70,
		},
		"the cost of the first of two rules": {
			rules: units(nil, func(r *headgate.Rule) { r.Cost.From = "header.x-cost" }), request: "path=/api/reports/x header.x-cost=20",
			reserved: 20, actual: headgate.Request{Attributes: headgate.Attributes{"header.x-cost": "30"}}, charged: 30,
		},
		"not below that of another rule": {
			rules: units(nil, func(r *headgate.Rule) { r.Cost.From = "header.x-cost" }), request: "path=/api/reports/x header.x-cost=20",
			reserved: 20, actual: headgate.Request{Attributes: headgate.Attributes{"header.x-cost": "3"}}, charged: 10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.rules == nil {
				test.rules = units()
			}
			w := newWorld(t, test.rules...)
			r, err := w.Reserve(t.Context(), headgate.Request{Attributes: parseAttributes("user=ann " + test.request), Cost: test.cost}, 0)
			if err != nil || charged(r.Decision) != fmt.Sprint("units ", test.reserved) {
				t.Fatalf("%+v: %v", r, err)
			}
			if d, err := w.Commit(t.Context(), r.Token, test.actual); granted(t, d, err) != test.charged || d.Limits[0].Rule != "units" {
				t.Errorf("committed %+v, want %d", d, test.charged)
			}
			w.expectLeftOf(t, "units", 100-test.charged)
		})
	}
}

// TestCounterExtensions extends a reservation whose cost is the highest of two: by the caller's number in both rules, or in one of them.
func TestCounterExtensions(t *testing.T) {
	t.Parallel()
	number := func(n int64) headgate.Request {
		return headgate.Request{Attributes: parseAttributes("user=ann path=/api/reports/x"), Cost: n}
	}
	attribute := func(n int64) headgate.Request {
		return headgate.Request{Attributes: parseAttributes(fmt.Sprint("user=ann path=/api/reports/x header.x-cost=", n))}
	}
	type step struct{ used, expected, covered, left int64 }
	for name, test := range map[string]struct {
		rules   []headgate.Rule
		request func(int64) headgate.Request
		steps   []step
	}{
		"multiplied": {units(func(r *headgate.Rule) { r.Cost.Default = 2 }), number, []step{
			{0, 10, 10, 80},
			{8, 20, 20, 60},
			{20, 90, 50, 0}, // as many as are left
			{50, 0, 0, 0},
		}},
		"fixed, and from an attribute": {units(nil, func(r *headgate.Rule) { r.Cost.From = "header.x-cost" }), attribute, []step{
			{0, 20, 20, 80},
			{5, 30, 30, 70}, // 5 cost 10
			{7, 0, 0, 90},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.rules...)
			var r headgate.Reservation
			var err error
			for i, s := range test.steps {
				switch {
				case i == 0:
					r, err = w.Reserve(t.Context(), test.request(s.expected), 0)
				case s.expected > 0:
					r, err = w.Extend(t.Context(), r.Token, test.request(s.used), test.request(s.expected), 0)
				default:
					_, err = w.Commit(t.Context(), r.Token, test.request(s.used))
					r.Covered = 0
				}
				if err != nil || !r.Decision.Allowed || r.Covered != s.covered {
					t.Errorf("step %d: %+v: %v; want %d covered", i, r, err, s.covered)
				}
				w.expectLeftOf(t, "units", s.left)
			}
		})
	}
}

// TestCommitAfterCounterChange commits reservations on rules that have become others.
func TestCommitAfterCounterChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, units(nil, func(r *headgate.Rule) { r.Meter = true })...)
	reserve := func() []byte {
		r, err := w.Reserve(t.Context(), headgate.Request{Attributes: parseAttributes("user=ann path=/web/reports/x")}, 0)
		if err != nil || r.Token == nil {
			t.Fatal(r, err)
		}
		return r.Token
	}
	tokens := [][]byte{reserve(), reserve()}
	w.SetRules(compile(t, rule(nil), headgate.Rule{ID: "units", Counter: "r"}))
	if d, err := w.Commit(t.Context(), tokens[0], headgate.Request{Cost: 2}); granted(t, d, err) != 20 || d.Limits[0].Metered {
		t.Errorf("%+v", d)
	}
	w.SetRules(compile(t))
	if d, err := w.Commit(t.Context(), tokens[1], headgate.Request{}); granted(t, d, err) != 10 {
		t.Errorf("%+v", d)
	}
	w.SetRules(compile(t, units()...))
	w.expectLeftOf(t, "units", 70)
}

// expectLeftOf compares the units that a rule has left for ann.
func (w *world) expectLeftOf(t *testing.T, rule string, want int64) {
	t.Helper()
	d, err := w.Peek(t.Context(), headgate.Request{Rule: rule, Attributes: headgate.Attributes{"user": "ann"}})
	if err != nil || d.Limits[0].Remaining != want {
		t.Errorf("%+v: %v; want %d left", d, err, want)
	}
}

func TestCompileRejectsCounters(t *testing.T) {
	t.Parallel()
	borrower := headgate.Rule{ID: "b", Counter: "r"}
	for name, test := range map[string]struct {
		rules []headgate.Rule
		want  string
	}{
		"unknown": {[]headgate.Rule{borrower}, `counter: rule "r" not found: write the id of the rule whose counters this rule charges`},
		"no ID":   {[]headgate.Rule{{ID: "b", Counter: "r s"}}, "counter: character ' ': must be a letter, a digit or one of -_.:/"},
		"itself":  {[]headgate.Rule{{ID: "b", Counter: "b"}}, `counter: names the rule itself: remove it, or write the id of another rule`},
		"a chain": {
			[]headgate.Rule{{ID: "b", Counter: "c"}, rule(nil), {ID: "c", Counter: "r"}},
			`counter: rule "c" charges the counters of rule "r" itself: write counter: r`,
		},
		"a rule by path": {
			[]headgate.Rule{rule(func(r *headgate.Rule) { r.By = []string{"path", "user"} }), borrower},
			`counter: rule "r" counts by path or method, and only rules that do not can share their counters: write by and limit here instead`,
		},
		"a rule by method": {[]headgate.Rule{rule(func(r *headgate.Rule) { r.By = []string{"method"} }), borrower}, `counter: rule "r" counts by path or method`},
		"the cost": {
			[]headgate.Rule{{ID: "b", Counter: "r", Cost: headgate.Cost{Default: 4}}, rule(nil)},
			"cost: 4: must be at most 3, the capacity of 3/minute: otherwise every request is denied",
		},
		"a cost of the table": {
			[]headgate.Rule{{ID: "b", Counter: "r", Costs: []headgate.CostEntry{{Match: headgate.Match{Path: "/x"}, Cost: 9}}}, rule(nil)},
			"costs.0.cost: 9: must be at most 3",
		},
		"shadow mode": {
			[]headgate.Rule{{ID: "b", Counter: "r", Mode: headgate.Shadow}, rule(nil)},
			`mode: belongs to rule "r", whose counters this rule charges: must be enforce or off`,
		},
	} {
		_, err := headgate.Compile(test.rules...)
		var wrong *headgate.RuleError
		if !errors.As(err, &wrong) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want only %q", name, err, test.want)
			continue
		}
		if got := strings.Join(wrong.Path, ".") + ": " + wrong.Problem; !strings.HasPrefix(got, test.want) || wrong.ID != "b" {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestCounterExcludesFields sets each field of a rule that charges the counters of another: the field is either one that such a rule has
// for itself or rejected.
func TestCounterExcludesFields(t *testing.T) {
	t.Parallel()
	own := []string{"ID", "Description", "Labels", "Match", "When", "Counter", "Cost", "Costs", "Mode"}
	for field := range reflect.TypeFor[headgate.Rule]().Fields() {
		if field.Name == "Counter" {
			continue
		}
		b := headgate.Rule{ID: "b", Counter: "r"}
		reflect.ValueOf(&b).Elem().FieldByIndex(field.Index).Set(otherValue(t, field.Type))
		_, err := headgate.Compile(rule(nil), b)
		if slices.Contains(own, field.Name) {
			if err != nil {
				t.Errorf("%s: %v", field.Name, err)
			}
		} else if err == nil || !strings.HasSuffix(err.Error(), `: belongs to rule "r", whose counters this rule charges: remove it`) {
			t.Errorf("%s: %v", field.Name, err)
		}
	}
}

// TestCounterWeighsOnce has many rules that match every request and charge the same counters.
func TestCounterWeighsOnce(t *testing.T) {
	t.Parallel()
	rules := []headgate.Rule{rule(many(headgate.PerHour(1000), headgate.MaxWeight-1))}
	for i := range 100 {
		rules = append(rules, headgate.Rule{ID: fmt.Sprint("b", i), Counter: "r"})
	}
	compile(t, rules...)
	rules[0].Match.Path = "/x"
	compile(t, rules...)
	_, err := headgate.Compile(append(rules, rule(func(r *headgate.Rule) { r.ID = "more" }))...)
	if err == nil || !strings.Contains(err.Error(), "weight 65") {
		t.Error(err)
	}
}

// TestCounterAllocations checks that a request which several rules charge allocates no more than with one rule.
func TestCounterAllocations(t *testing.T) {
	allocations := func(rules ...headgate.Rule) float64 {
		w := newWorld(t, rules...)
		req := headgate.Request{Attributes: headgate.Attributes{"user": "ann", "path": "/api/reports/x", "tenant": "ai"}}
		fewest := math.Inf(1)
		for range 100 { // the race detector has pools lose what they hold
			fewest = min(fewest, testing.AllocsPerRun(1, func() { _, _ = w.Check(t.Context(), req) }))
		}
		return fewest
	}
	if alone, shared := allocations(units()[1]), allocations(units()...); shared > alone {
		t.Errorf("%v allocations with three rules, %v with one", shared, alone)
	}
}

// TestCounterEqualsModel compares charges with a model that shares no code with the limiter, for random rules, requests and exemptions.
func TestCounterEqualsModel(t *testing.T) {
	t.Parallel()
	sets, requests := 600, 40
	if testing.Short() {
		sets = 150
	}
	shared := 0
	for seed := range sets {
		g := newGenerator(uint64(seed), 30)
		rules := g.sharingRules()
		w := newWorld(t, rules...)
		exempt := headgate.Exemption{Attribute: "ip", Value: oneOf(g, addresses[:3]...), Rule: oneOf(g, append(rules, headgate.Rule{})...).ID}
		if err := w.Exceptions().Exempt(exempt); err != nil {
			t.Fatal(err)
		}
		for range requests {
			req := headgate.Request{Attributes: g.attributes(), Cost: g.Int64N(3)}
			if g.chance(2) {
				req.Attributes["header.x-cost"] = strconv.Itoa(g.IntN(99))
			}
			if g.chance(4) {
				req.Rule = oneOf(g, rules...).ID
			}
			want, contributors := modelCharges(rules, &req, exempt)
			e, err := w.Explain(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			e.Rules = slices.DeleteFunc(e.Rules, func(r headgate.RuleExplanation) bool { return !r.Applies })
			applied := slices.EqualFunc(e.Rules, contributors, func(r headgate.RuleExplanation, id string) bool { return r.Rule.ID == id })
			if req.Rule == "" && (!applied || charged(e.Decision) != want) {
				t.Fatalf("seed %d: request %+v\nexplained %+v\nmodel     %v: %s", seed, req, e, contributors, want)
			}
			d, err := w.Check(t.Context(), req)
			if err != nil || !d.Allowed || charged(d) != want {
				t.Fatalf("seed %d: request %+v\ncharged %s\nmodel   %s\nrules: %+v\nexempt: %+v", seed, req, charged(d), want, rules, exempt)
			}
			if len(contributors) > len(d.Limits) {
				shared++
			}
		}
	}
	if shared < 2*sets {
		t.Errorf("only %d requests were charged by several rules on the same counters", shared)
	}
}

// sharingRules returns rules of which some charge the counters of others.
func (g generator) sharingRules() []headgate.Rule {
	rules := g.rules()
	owners := 1 + g.IntN(len(rules))
	for i := range rules {
		r := &rules[i]
		r.Limit = window(headgate.MaxCost)
		r.Cost = headgate.Cost{Default: g.Int64N(20)}
		if g.chance(3) {
			r.Costs = []headgate.CostEntry{{Match: headgate.Match{Method: oneOf(g, verbs...)}, Cost: 1 + g.Int64N(40)}}
		}
		switch g.IntN(4) {
		case 0:
			r.Cost.From, r.Cost.Max = "header.x-cost", 60
		case 1:
			r.Cost.Max = 30
		}
		if i >= owners {
			r.Counter, r.By, r.Limit, r.Priority = rules[g.IntN(owners)].ID, nil, headgate.Limit{}, 0
		}
	}
	g.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
	return rules
}

// modelCharges returns what a request is charged as charged does, and the IDs of the rules that contribute.
func modelCharges(rules []headgate.Rule, req *headgate.Request, exempt headgate.Exemption) (want string, contributors []string) {
	owner := func(r headgate.Rule) headgate.Rule {
		n := slices.IndexFunc(rules, func(o headgate.Rule) bool { return o.ID == r.Counter })
		if n < 0 {
			return r
		}
		return rules[n]
	}
	whole := slices.Clone(rules)
	for i := range whole {
		of := owner(rules[i])
		whole[i].By, whole[i].Priority = of.By, of.Priority
		if of.Mode == headgate.Off {
			whole[i].Mode = headgate.Off
		}
	}
	base := map[string]int64{} // by rule, the highest cost of all readings in which the rule applies
	for _, reading := range readingsOf(req.Attributes) {
		applies := map[string]bool{}
		scanReading(whole, reading, applies)
		for i, r := range whole {
			if req.Rule == "" && !applies[r.ID] || req.Rule != "" && (req.Rule != r.ID || r.Mode == headgate.Off) {
				continue
			}
			cost := max(1, r.Cost.Default)
			for _, e := range rules[i].Costs {
				if e.Match.Method == reading["method"] {
					cost = e.Cost
				}
			}
			base[r.ID] = max(base[r.ID], cost)
		}
	}
	highest := map[string]int64{}
	for _, r := range rules {
		cost, ok := base[r.ID]
		of := owner(r)
		if !ok || req.Attributes["ip"] == exempt.Value && slices.Contains([]string{"", r.ID, of.ID}, exempt.Rule) {
			continue
		}
		given, err := strconv.ParseInt(req.Attributes["header.x-cost"], 10, 64)
		switch {
		case r.Cost.From == "" && r.Cost.Max > 0 && req.Cost > 0:
			cost = min(req.Cost, r.Cost.Max)
		case r.Cost.From != "" && err == nil:
			cost = max(1, min(given, r.Cost.Max)) * max(1, req.Cost)
		default:
			cost *= max(1, req.Cost)
		}
		contributors = append(contributors, r.ID)
		highest[of.ID] = max(highest[of.ID], cost)
	}
	var all []string
	for _, r := range rules {
		if cost, ok := highest[r.ID]; ok {
			all = append(all, r.ID+" "+strconv.FormatInt(cost, 10))
		}
	}
	return strings.Join(all, ", "), contributors
}
