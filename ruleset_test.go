package headgate_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// TestVersion changes one field after the other.
func TestVersion(t *testing.T) {
	t.Parallel()
	base := func() headgate.Rule { return rule(nil) }
	leaky := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second}
	changes := map[string]func(*headgate.Rule){
		"ID":          func(r *headgate.Rule) { r.ID = "other" },
		"Description": func(r *headgate.Rule) { r.Description = "other" },
		"Labels":      func(r *headgate.Rule) { r.Labels = map[string]string{"team": "a"} },
		"Match":       func(r *headgate.Rule) { r.Match.Path = "/x" },
		"When": func(r *headgate.Rule) {
			r.When = headgate.Condition{Text: "x", Holds: func(headgate.Attributes) bool { return true }}
		},
		"By":             func(r *headgate.Rule) { r.By = []string{"ip"} },
		"OnMissing":      func(r *headgate.Rule) { r.OnMissing = headgate.DenyMissing },
		"Limit":          func(r *headgate.Rule) { r.Limit = headgate.PerMinute(4) },
		"Limits":         func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"a": headgate.PerDay(1)} },
		"Tiers":          func(r *headgate.Rule) { r.Tiers = map[string]headgate.Plan{"pro": {Limit: headgate.PerDay(1)}} },
		"MaxCallerLimit": func(r *headgate.Rule) { r.MaxCallerLimit = headgate.PerDay(1) },
		"Candidate":      func(r *headgate.Rule) { r.Candidate.Limit = headgate.PerDay(1) },
		"Cost":           func(r *headgate.Rule) { r.Cost.Default = 2 },
		"Overdraw":       func(r *headgate.Rule) { r.Overdraw = true },
		"MaxDelay":       func(r *headgate.Rule) { r.Limit, r.MaxDelay = leaky, time.Second },
		"Priority":       func(r *headgate.Rule) { r.Priority = 1 },
		"Mode":           func(r *headgate.Rule) { r.Mode = headgate.Shadow },
		"EnforcePercent": func(r *headgate.Rule) { r.EnforcePercent = 10 },
		"OnStoreFailure": func(r *headgate.Rule) { r.OnStoreFailure = headgate.FailDeny },
		"Strict":         func(r *headgate.Rule) { r.Strict = true },
		"Critical":       func(r *headgate.Rule) { r.Critical = true },
		"Expose":         func(r *headgate.Rule) { r.Expose = headgate.ExposeNever },
		"Meter":          func(r *headgate.Rule) { r.Meter = true },
	}
	seen := map[string]string{compile(t, base()).Version(): "unchanged"}
	for field := range reflect.TypeFor[headgate.Rule]().Fields() {
		change := changes[field.Name]
		if change == nil {
			t.Errorf("no change of %s", field.Name)
			continue
		}
		r := base()
		change(&r)
		set := compile(t, r)
		if other, twice := seen[set.Version()]; twice {
			t.Errorf("the version after a change of %s is that of %s", field.Name, other)
		}
		seen[set.Version()] = field.Name
		if compile(t, r).Version() != set.Version() {
			t.Errorf("%s: the same rules have two versions", field.Name)
		}
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	month := func(zone *time.Location) string {
		return compile(t, rule(func(r *headgate.Rule) { r.Limit = headgate.Quota(5, headgate.Month, zone) })).Version()
	}
	if month(berlin) == month(nil) || month(time.UTC) != month(nil) {
		t.Error("versions and time zones")
	}
	if set := compile(t, base()); set.WithMode(headgate.Shadow).Version() != set.Version()+"+shadow" {
		t.Errorf("in shadow: %s", set.WithMode(headgate.Shadow).Version())
	}
}

// TestSwap changes rules under requests: each is decided by one of the two sets, never by parts of both.
func TestSwap(t *testing.T) {
	t.Parallel()
	sets := make([]*headgate.RuleSet, 2)
	for i := range sets {
		var rules []headgate.Rule
		for n := range 4 {
			rules = append(rules, rule(func(r *headgate.Rule) {
				r.ID, r.Limit = fmt.Sprint("r", n), headgate.PerHour(int64(1000*(i+1)))
			}))
		}
		if i == 1 {
			slices.Reverse(rules)
		}
		sets[i] = compile(t, rules...)
	}
	limiter := headgate.NewLimiter(memstore.New(memstore.Options{}), sets[0], headgate.Options{})
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				d, _ := limiter.Check(ctx, headgate.Request{Attributes: headgate.Attributes{"user": "ann"}})
				for _, l := range d.Limits {
					set := 0
					if l.Limit.Count == 2000 {
						set = 1
					}
					if d.Version != sets[set].Version() || len(d.Limits) != 4 {
						t.Errorf("%+v", d)
						return
					}
				}
			}
		})
	}
	for i := range 1000 {
		limiter.SetRules(sets[(i+1)%2])
		time.Sleep(20 * time.Microsecond)
	}
	stop()
	group.Wait()
}

func TestAttributesOfRules(t *testing.T) {
	t.Parallel()
	set := compile(t,
		headgate.Rule{ID: "a", By: []string{"client"}, Limit: headgate.PerDay(1), Cost: headgate.Cost{From: "header.x-rows"}},
		headgate.Rule{
			ID: "b", By: headgate.Everybody, Limit: headgate.PerDay(1), Match: headgate.Match{Path: "/x"},
			When:  headgate.Condition{Text: "x", Attributes: []string{"claim.plan"}, Holds: func(headgate.Attributes) bool { return true }},
			Tiers: map[string]headgate.Plan{"pro": {Limit: headgate.PerDay(2)}},
		},
	)
	want := []string{"claim.plan", "client", "header.x-rows", "path", "tier"}
	if got := set.Attributes(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
