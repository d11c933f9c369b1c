package headgate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// budget returns a rule with a cost table.
func budget(change func(*headgate.Rule)) headgate.Rule {
	r := headgate.Rule{
		ID: "units", By: []string{"tenant"}, Limit: headgate.PerDay(1000), Cost: headgate.Cost{Default: 2},
		Costs: []headgate.CostEntry{
			{Match: headgate.Match{Method: "POST", Path: "/ai/generate"}, Cost: 50},
			{Match: headgate.Match{Method: "POST"}, Cost: 5},
			{Match: headgate.Match{Path: "/ai/generate"}, Cost: 7},
		},
	}
	change(&r)
	return r
}

func TestCostTable(t *testing.T) {
	t.Parallel()
	plain := func(*headgate.Rule) {}
	post := func(more headgate.Attributes) headgate.Attributes {
		a := headgate.Attributes{"tenant": "acme", "method": "POST", "path": "/ai/generate"}
		for name, value := range more {
			a[name] = value
		}
		return a
	}
	for name, test := range map[string]struct {
		rule func(*headgate.Rule)
		req  headgate.Request
		want int64
	}{
		"the first matching entry":     {plain, headgate.Request{Attributes: post(nil)}, 50},
		"the second entry":             {plain, headgate.Request{Attributes: post(headgate.Attributes{"path": "/x"})}, 5},
		"the third entry":              {plain, headgate.Request{Attributes: post(headgate.Attributes{"method": "GET"})}, 7},
		"no entry":                     {plain, headgate.Request{Attributes: headgate.Attributes{"tenant": "acme"}}, 2},
		"no entry and no default":      {func(r *headgate.Rule) { r.Cost = headgate.Cost{} }, headgate.Request{Attributes: headgate.Attributes{"tenant": "acme"}}, 1},
		"the caller's cost multiplies": {plain, headgate.Request{Attributes: post(nil), Cost: 3}, 150},
		"the rule by its ID":           {plain, headgate.Request{Attributes: post(nil), Rule: "units"}, 50},
		"another reading of the path":  {plain, headgate.Request{Attributes: post(headgate.Attributes{"path": "/x", headgate.OtherPath: "/y?/ai/generate?/z"})}, 50},
		"another reading of the method": {
			plain, headgate.Request{Attributes: post(headgate.Attributes{"method": "GET", "path": "/x", headgate.OtherMethod: "POST"})}, 5,
		},
		"any method, by ID": {
			plain, headgate.Request{Rule: "units", Attributes: post(headgate.Attributes{"method": "GET", headgate.OtherMethod: headgate.AnyMethod})}, 50,
		},
		"an attribute replaces the table": {
			func(r *headgate.Rule) { r.Cost = headgate.Cost{From: "header.x-cost", Max: 80} },
			headgate.Request{Attributes: post(headgate.Attributes{"header.x-cost": "99"})},
			80,
		},
		"without the attribute the table counts": {
			func(r *headgate.Rule) { r.Cost = headgate.Cost{From: "header.x-cost", Max: 80} },
			headgate.Request{Attributes: post(nil)},
			50,
		},
		"the caller's cost replaces the table up to max": {
			func(r *headgate.Rule) { r.Cost.Max = 600 }, headgate.Request{Attributes: post(nil), Cost: 700}, 600,
		},
		"the caller's cost may be lower": {
			func(r *headgate.Rule) { r.Cost.Min, r.Cost.Max = 3, 600 }, headgate.Request{Attributes: post(nil), Cost: 1}, 3,
		},
		"a caller without a cost": {
			func(r *headgate.Rule) { r.Cost.Max = 600 }, headgate.Request{Attributes: post(nil)}, 50,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := headgate.New(memstore.New(memstore.Options{}), budget(test.rule))
			if err != nil {
				t.Fatal(err)
			}
			d, err := l.Check(t.Context(), test.req)
			if err != nil || len(d.Limits) != 1 || d.Limits[0].Cost != test.want || d.Limits[0].Remaining != 1000-test.want {
				t.Errorf("%+v (%v), want a cost of %d", d, err, test.want)
			}
		})
	}
}

// TestCostTableReservation shows that a commit multiplies the cost of the entry, as the reservation did.
func TestCostTableReservation(t *testing.T) {
	t.Parallel()
	l, err := headgate.New(memstore.New(memstore.Options{}), budget(func(*headgate.Rule) {}))
	if err != nil {
		t.Fatal(err)
	}
	generate := headgate.Attributes{"tenant": "acme", "method": "POST", "path": "/ai/generate"}
	held, err := l.Reserve(t.Context(), headgate.Request{Attributes: generate, Cost: 4}, time.Minute)
	if err != nil || held.Decision.Limits[0].Remaining != 800 {
		t.Fatalf("%+v (%v), want 800 remaining", held.Decision, err)
	}
	d, err := l.Commit(t.Context(), held.Token, headgate.Request{Cost: 3})
	if err != nil || d.Limits[0].Remaining != 850 {
		t.Errorf("%+v (%v), want 850 remaining", d, err)
	}
}

func TestCostTableIsValidated(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*headgate.Rule){
		"costs.1: cost: required": func(r *headgate.Rule) { r.Costs[1].Cost = 0 },
		"costs.0.cost: 1001: must be at most 1000, the capacity of 1000/day":               func(r *headgate.Rule) { r.Costs[0].Cost = 1001 },
		"costs.2: match: required: write the cost of all other requests as cost":           func(r *headgate.Rule) { r.Costs[2].Match = headgate.Match{} },
		`costs.1.match.method: method "post": must be upper case: write POST`:              func(r *headgate.Rule) { r.Costs[1].Match.Method = "post" },
		"cost: min only applies to from or max: add one of them, or write only the number": func(r *headgate.Rule) { r.Cost.Min = 2 },
	} {
		if _, err := headgate.Compile(budget(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
