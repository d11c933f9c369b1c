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

// TestVersion changes one field of a rule or its limit at a time.
func TestVersion(t *testing.T) {
	t.Parallel()
	seen := map[string]string{compile(t, rule(nil)).Version(): "unchanged"}
	changed := func(name string, r headgate.Rule) {
		version := compile(t, r).Version()
		if other, twice := seen[version]; twice {
			t.Errorf("the version after a change of %s is that of %s", name, other)
		}
		seen[version] = name
		if compile(t, r).Version() != version {
			t.Errorf("%s: the same rules have two versions", name)
		}
	}
	for field := range reflect.TypeFor[headgate.Rule]().Fields() {
		r := rule(nil)
		if field.Name == "MaxDelay" {
			r.Limit.Algorithm = headgate.LeakyBucket
		}
		if field.Name == "Counter" {
			continue // it excludes most other fields; see TestCounter
		}
		reflect.ValueOf(&r).Elem().FieldByIndex(field.Index).Set(otherValue(t, field.Type))
		changed(field.Name, r)
	}
	for field := range reflect.TypeFor[headgate.Limit]().Fields() {
		r := rule(nil)
		switch field.Name {
		case "Align":
			r.Limit.Algorithm = headgate.FixedWindow
		case "Calendar", "TimeZone", "AnchorDay":
			r.Limit = headgate.Quota(5, headgate.Month, nil)
		}
		reflect.ValueOf(&r.Limit).Elem().FieldByIndex(field.Index).Set(otherValue(t, field.Type))
		changed("Limit."+field.Name, r)
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
	if set := compile(t, rule(nil)); set.WithMode(headgate.Shadow).Version() != set.Version()+"+shadow" {
		t.Errorf("in shadow: %s", set.WithMode(headgate.Shadow).Version())
	}
}

// otherValue returns a valid value of a type that no rule of these tests has.
func otherValue(t *testing.T, of reflect.Type) reflect.Value {
	t.Helper()
	for _, value := range []any{
		headgate.PerDay(7),
		headgate.SharedRegions,
		[]string{"ip"},
		headgate.Match{Path: "/x"},
		headgate.Cost{Default: 2},
		headgate.CostEntry{Match: headgate.Match{Path: "/x"}, Cost: 3},
		headgate.ChargeHold,
		time.FixedZone("there", 3600),
		headgate.Condition{Text: "x", Holds: func(headgate.Attributes) bool { return true }},
	} {
		if reflect.TypeOf(value) == of {
			return reflect.ValueOf(value)
		}
	}
	value := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.Bool:
		value.SetBool(true)
	case reflect.String:
		value.SetString("other")
	case reflect.Int, reflect.Int64:
		value.SetInt(9)
		if of == reflect.TypeFor[time.Duration]() {
			value.SetInt(int64(time.Second))
		}
	case reflect.Uint8:
		value.SetUint(2)
	case reflect.Map:
		value.Set(reflect.MakeMap(of))
		value.SetMapIndex(reflect.ValueOf("x"), otherValue(t, of.Elem()))
	case reflect.Slice:
		value.Set(reflect.Append(value, otherValue(t, of.Elem())))
	case reflect.Struct:
		value.Field(0).Set(otherValue(t, of.Field(0).Type))
	default:
		t.Fatalf("no other value of type %s", of)
	}
	return value
}

// TestSwap replaces rules during requests: each request is decided by one of the two sets, never by parts of both.
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
			ID: "b", By: headgate.Global, Limit: headgate.PerDay(1), Match: headgate.Match{Path: "/x"},
			When:  headgate.Condition{Text: "x", Attributes: []string{"claim.plan"}, Holds: func(headgate.Attributes) bool { return true }},
			Tiers: map[string]headgate.Plan{"pro": {Limit: headgate.PerDay(2)}},
		},
	)
	want := []string{"claim.plan", "client", "header.x-rows", "path", "tier"}
	if got := set.Attributes(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
