package rulediff

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/ruledoc"
)

func parse(t *testing.T, text string) *ruledoc.Document {
	t.Helper()
	d, err := ruledoc.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return d
}

// TestDiffRule changes one key of a rule at a time, in both directions.
func TestDiffRule(t *testing.T) {
	t.Parallel()
	const continues, expires, reset = "counters continue; used units stay used", "used units expire", "counters reset"
	for _, c := range []struct {
		from, to    string
		effect      effect
		consequence string
	}{
		{"limit: 10/minute", "limit: 20/minute", looser, continues},
		{"limit: 10/minute", "limit: {rate: 10/minute, burst: 20}", looser, continues},
		{"limit: 10/minute", "limit: {rate: 20/minute, burst: 5}", other, continues},
		{"limit: 10/minute", "limit: 600/h", looser, expires},
		{"limit: 10/minute", "limit: {rate: 10/minute, algorithm: sliding_window}", other, reset},
		{"algorithm: fixed_window, limit: 9/m", "algorithm: fixed_window, limit: {rate: 9/m, align: clock}", other, expires},
		{"limit: {quota: 9, calendar: day}", "limit: {quota: 99, calendar: day}", looser, continues},
		{"limit: {quota: 9, calendar: day}", "limit: {quota: 9, calendar: month}", other, expires},
		{"limit: {quota: 9, calendar: day}", "limit: {quota: 9, calendar: day, timezone: Europe/Berlin}", other, expires},
		{"limit: 9 concurrent", "limit: 10 concurrent", looser, "in flight stay counted"},
		{"limit: 9 concurrent", "limit: {concurrent: 9, lease: 1m}", tighter, "leases end by the new limit"},
		{"limit: 9 concurrent", "limit: {concurrent: 10, lease: 1m}", other, "leases end by the new limit"},
		{"limit: 9 concurrent", "limit: {concurrent: 10, lease: 1s}", looser, "leases end by the new limit"},
		{"limit: 9 concurrent", "limit: 9/s", other, reset},
		{"limits: {a: 1/s, b: 2/s}", "limits: {a: 1/s}", looser, ""},
		{"limit: 1/s", "limit: 1/s, tiers: {pro: 2/s}", looser, continues},
		{"limit: 1/s, tiers: {pro: 2/s}", "limit: 1/s, tiers: {pro: 3/s}", looser, continues},
		{"limit: 1/s", "limit: 1/s, candidate: 9/s", other, "denies no request"},
		{"limit: 1/s, on_missing: share", "limit: 1/s, on_missing: skip", looser, "lack"},
		{"limit: 1/s, on_missing: deny", "limit: 1/s, on_missing: share", looser, "lack"},
		{"limit: 1/s, on_store_failure: deny", "limit: 1/s, on_store_failure: allow", looser, "store"},
		{"limit: 1/s, regions: shared", "limit: 1/s", looser, continues},
		{"limit: 1/s, regions: each", "limit: 1/s, regions: shared", tighter, continues},
		{"limit: 9/s, cost: 3", "limit: 9/s, cost: 2", looser, "used units stay used"},
		{"limit: 9/s, cost: 3", "limit: 9/s, cost: {from: header.x}", other, "used units stay used"},
		{"limit: 9/s, cost: 3", "limit: 9/s, cost: {default: 3, max: 9}", other, "used units stay used"},
		{"limit: 9/s, costs: [{match: {path: /a}, cost: 3}]", "limit: 9/s, costs: [{match: {path: /a}, cost: 2}]", looser, "used units stay used"},
		{"limit: 9/s, costs: [{match: {path: /a}, cost: 3}]", "limit: 9/s", looser, "used units stay used"},
		{"limit: 9/s, cost: 4, costs: [{match: {path: /a}, cost: 3}]", "limit: 9/s, cost: 4", tighter, "used units stay used"},
		{"limit: 9/s, costs: [{match: {path: /a}, cost: 3}]", "limit: 9/s, costs: [{match: {path: /b}, cost: 2}]", other, "used units stay used"},
		{
			"limit: 9/s, costs: [{match: {path: /a}, cost: 3}, {match: {user: x}, cost: 5}]",
			"limit: 9/s, costs: [{match: {path: /a}, cost: 4}, {match: {user: x}, cost: 4}]", other, "used units stay used",
		},
		{
			"limit: 9/s, costs: [{match: {path: /a}, cost: 3}, {match: {user: x}, cost: 5}]",
			"limit: 9/s, costs: [{match: {path: /b}, cost: 5}, {match: {path: /a}, cost: 3}, {match: {user: x}, cost: 5}]", tighter, "used units stay used",
		},
		{
			"limit: 9/s, costs: [{match: {path: /a}, cost: 3}, {match: {user: x}, cost: 5}]",
			"limit: 9/s, costs: [{match: {path: /b}, cost: 4}, {match: {path: /a}, cost: 3}, {match: {user: x}, cost: 5}]", other, "used units stay used",
		},
		{"limit: 1/s, enforce_percent: 50", "limit: 1/s, enforce_percent: 10", looser, "shadow"},
		{"limit: 1/s", "limit: 1/s, enforce_percent: 10", looser, "shadow"},
		{"limit: 1/s", "limit: 1/s, priority: 3", other, "highest"},
		{"limit: 1/s", "limit: 1/s, expose: false", other, "headers"},
		{"limit: 1/s", "limit: 1/s, strict: true", other, "only the store"},
		{"limit: 1/s", "limit: 1/s, critical: true", other, "last"},
		{"limit: 1/s", "limit: 1/s, description: x", other, "documentation"},
		{"limit: 1/s", "limit: 1/s, labels: {a: map}", other, "people"},
		{"limit: 1/s", "limit: 1/s, mode: shadow", looser, "denies no request; counts"},
		{"limit: 1/s", "limit: 1/s, mode: 'off'", looser, "counts nothing"},
		{"limit: 1/s, priority: 1", "limit: 1/s, priority: 1, mode: shadow", other, "denies"},
		{"limit: 1/s, mode: shadow", "limit: 2/s, mode: shadow", other, continues},
		{"algorithm: leaky_bucket, limit: 1/s", "algorithm: leaky_bucket, limit: 1/s, max_delay: 2s", looser, ""},
		{"match: {path: [/a, /b]}, limit: 1/s", "match: {path: /a}, limit: 1/s", looser, "fewer requests"},
		{"limit: 1/s", "match: {path: /a}, limit: 1/s", looser, "fewer requests"},
		{"match: {path: /a}, limit: 1/s", "match: {path: /b}, limit: 1/s", other, "other requests"},
		{"match: {path: /a, ignore_case: true}, limit: 1/s", "match: {path: /a}, limit: 1/s", looser, "fewer requests"},
		{"match: {user: {not: [a]}}, limit: 1/s", "match: {user: {not: [a, b]}}, limit: 1/s", other, "other requests"},
		{"match: {ip: {cidr: 10.0.0.0/8}}, limit: 1/s", "match: {ip: {absent: true}}, limit: 1/s", other, "other requests"},
		{"match: {user: {prefix: a}}, limit: 1/s", "match: {user: {absent: false}}, limit: 1/s", other, "other requests"},
		{"limit: 1/s", "when: user == 'x', limit: 1/s", looser, "fewer requests"},
		{"when: user == 'y', limit: 1/s", "when: user == 'x', limit: 1/s", other, "other requests"},
		{"match: {path: [/a, /b]}, priority: 1, limit: 1/s", "match: {path: /a}, priority: 1, limit: 1/s", other, "other"},
	} {
		document := func(rule string) *ruledoc.Document {
			return parse(t, fmt.Sprintf("rules:\n  - {id: r, by: [ip], %s}\n", rule))
		}
		from, to := document(c.from), document(c.to)
		for _, way := range []struct {
			from, to *ruledoc.Document
			effect   effect
		}{{from, to, c.effect}, {to, from, c.effect.opposite()}} {
			r := New(way.from, way.to, time.Now())
			if len(r.Entries) != 1 || len(r.Entries[0].Changes) != 1 {
				t.Errorf("%s | %s: %+v", c.from, c.to, r.Entries)
				continue
			}
			got := r.Entries[0].Changes[0]
			consequence := c.consequence
			if way.effect != c.effect && strings.Contains(c.consequence, "fewer") {
				consequence = "more requests"
			} else if got.What == "mode" && way.effect != c.effect {
				consequence = "denies; used units stay used"
			}
			if got.Effect != way.effect || !strings.Contains(got.Consequence, consequence) || got.text() == "" {
				t.Errorf("%s | %s: got %+v, want %s, %s", c.from, c.to, got, way.effect, consequence)
			}
			if reset := strings.Contains(got.Consequence, "reset"); reset != (len(r.StartAnew) == 1) {
				t.Errorf("%s | %s: counters reset: %v", c.from, c.to, r.StartAnew)
			}
		}
	}
}

// TestDiffDetectsEveryKey removes each key, at any depth, from a rule that has all of them: if the rules differ, the report must
// not be empty.
func TestDiffDetectsEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../ruledoc/testdata/good/every_key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	rules := strings.Replace(string(text), "default: 1, min: 1", "min: 2", 1) // 1 is the default
	for _, rule := range parse(t, rules).Source {
		document, err := ruledoc.EncodeRule(rule)
		if err != nil {
			t.Fatal(err)
		}
		var tree map[string]any
		if err := json.Unmarshal(document, &tree); err != nil {
			t.Fatal(err)
		}
		others := []any{}
		if rule.Counter != "" {
			others = append(others, map[string]any{"id": rule.Counter, "by": "ip", "limit": "9/s"})
		}
		encoded, err := json.Marshal(map[string]any{"rules": append(others, tree)})
		if err != nil {
			t.Fatal(err)
		}
		whole := parse(t, string(encoded))
		without(tree, func(key string) {
			document, err := json.Marshal(map[string]any{"rules": append(others, tree)})
			if err != nil {
				t.Fatal(err)
			}
			rest, err := ruledoc.Parse("rest", document)
			if err != nil || rest.Rules.Version() == whole.Rules.Version() {
				return // not a valid rule, or the same one
			}
			if seen++; len(New(whole, rest, time.Now()).Entries) == 0 {
				t.Errorf("removing %s is not reported", key)
			}
		})
	}
	if seen < 30 {
		t.Errorf("only %d keys could be removed", seen)
	}
}

// without calls each with one of the keys of a tree removed, for all keys at any depth.
func without(tree map[string]any, each func(key string)) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		value := tree[key]
		if below, ok := value.(map[string]any); ok {
			without(below, each)
		}
		delete(tree, key)
		each(key)
		tree[key] = value
	}
}

// TestDiffCounter changes rules that charge the counters of another, in both directions.
func TestDiffCounter(t *testing.T) {
	t.Parallel()
	const rules = "rules:\n  - {id: a, by: [ip], limit: 9/s}\n  - {id: b, by: [ip], limit: 9/s, priority: 1}\n" +
		"  - {id: c, by: [ip], limit: 9/s, mode: shadow}\n"
	for _, c := range []struct {
		from, to, what string
		effect         effect
	}{
		{"counter: a", "counter: a, cost: 2", "cost", tighter},
		{"counter: a, costs: [{match: {path: /a}, cost: 3}]", "counter: a", "costs", looser},
		{"counter: a", "counter: b", "counter", other},
		{"counter: a", "counter: a, match: {path: /x}", "match path", looser},
		{"counter: b", "counter: b, match: {path: /x}", "match path", other},
		{"counter: c", "counter: c, match: {path: /x}", "match path", other},
		{"counter: a", "counter: a, mode: 'off'", "mode", looser},
		{"counter: a", "by: [ip], limit: 1/s", "counter", other},
		{"counter: a", "", "", looser},
		{"counter: b", "", "", other},
		{"counter: c", "", "", other},
	} {
		document := func(rule string) *ruledoc.Document {
			if rule == "" {
				return parse(t, rules)
			}
			return parse(t, rules+"  - {id: r, "+rule+"}\n")
		}
		from, to := document(c.from), document(c.to)
		for _, way := range []struct {
			from, to *ruledoc.Document
			effect   effect
		}{{from, to, c.effect}, {to, from, c.effect.opposite()}} {
			r := New(way.from, way.to, time.Now())
			found := false
			for _, got := range r.Entries[0].Changes {
				found = found || got.What == c.what
				if got.Effect != way.effect {
					t.Errorf("%s | %s: got %+v, want %s", c.from, c.to, got, way.effect)
				}
			}
			if len(r.Entries) != 1 || !found {
				t.Errorf("%s | %s: %+v", c.from, c.to, r.Entries)
			}
		}
	}
}

func TestDiffBy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to string
		effect   effect
	}{
		{"by: []", "by: [ip]", looser},
		{"by: [ip]", "by: [ip, user]", looser},
		{"by: [ip]", "by: [user]", other},
		{"by: [user]", "by: [client]", other},
		{"by: [user]", "by: [client, user]", other},
		{"by: [ip], on_missing: deny", "by: [ip, user], on_missing: deny", other},
	} {
		from := parse(t, "rules: [{id: r, limit: 1/s, "+c.from+"}]")
		to := parse(t, "rules: [{id: r, limit: 1/s, "+c.to+"}]")
		r := New(from, to, time.Now())
		got := r.Entries[0].Changes[0]
		if got.Effect != c.effect || got.Consequence != "all counters reset" || len(r.StartAnew) != 1 {
			t.Errorf("%s | %s: %+v", c.from, c.to, got)
		}
	}
}

// TestDiffEquivalent changes the text of a document but not its meaning.
func TestDiffEquivalent(t *testing.T) {
	t.Parallel()
	a := parse(t, `
rules:
  - {id: a, by: [ip, user], limit: 60/min, match: {path: [/a, /b], ip: {cidr: [10.0.0.0/8, 11.0.0.0/8]}}}
  - {id: b, by: [], limit: {rate: 5/s, burst: 5}, cost: 1, on_store_failure: local, labels: {x: y, z: map}}`)
	b := parse(t, `
mode: enforce
rules:
  - {id: b, by: [], limit: 5/s, on_missing: share, mode: enforce, labels: {z: map, x: y}}
  - {id: a, by: [user, ip], limit: 60/1m, match: {path: [/b, /a], ip: {cidr: [11.0.0.0/8, 10.0.0.0/8]}}}`)
	if r := New(a, b, time.Now()); len(r.Entries) > 0 {
		t.Errorf("%s", r.String())
	}
}

func TestDiffModeOfAll(t *testing.T) {
	t.Parallel()
	a := parse(t, "rules: [{id: r, by: [ip], limit: 1/s}]")
	b := parse(t, "mode: shadow\nrules: [{id: r, by: [ip], limit: 2/s}]")
	text := New(a, b, time.Now()).String()
	if !strings.Contains(text, "changed mode of all rules\n  looser   mode: enforce → shadow (denies no request; ") {
		t.Error(text)
	}
	// Under the cap nothing else is looser or tighter.
	c := parse(t, "mode: shadow\nrules: [{id: r, by: [ip], limit: 1/s}]")
	text = New(c, b, time.Now()).String()
	if !strings.Contains(text, "changed rule r (denies no request: mode is shadow)\n  other    limit: 1/second → ") {
		t.Error(text)
	}
}

func TestDiffExceptions(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	document := func(exceptions string) *ruledoc.Document {
		const rules = "rules: [{id: r, by: [user], limit: 5/s}, {id: t, by: [user], limit: 5/s, tiers: {x: 9/s}}]\n"
		return parse(t, rules+exceptions)
	}
	const past, lately = "2020-01-01T00:00:00Z", "2025-01-01T00:00:00Z"
	const sooner, later = "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"
	override := func(rest string) string { return "overrides: [{subject: {user: ann}, " + rest + "}]\n" }
	for _, c := range []struct {
		from, to string
		effect   effect
	}{
		{"", override("rule: r, limit: 9/s"), looser},
		{"", override("rule: r, limit: 1/s"), tighter},
		{"", override("rule: t, limit: 9/s"), other},
		{"", override("rule: r, limit: 9/s, expires: 2025-12-31T23:59:59Z"), other},
		{override("rule: r, limit: 9/s"), override("rule: r, limit: 10/s"), looser},
		{override("rule: r, limit: 9/s, expires: " + sooner), override("rule: r, limit: 9/s, expires: " + later), looser},
		{override("rule: r, limit: 1/s, expires: " + sooner), override("rule: r, limit: 1/s, expires: " + later), other},
		{override("rule: r, limit: 9/s"), override("rule: r, limit: 9/s, reason: x"), other},
		{"", "exemptions: [{user: ann}]", looser},
		{"exemptions: [{user: ann, expires: " + sooner + "}]", "exemptions: [{user: ann}]", looser},
		{"exemptions: [{user: ann, expires: " + past + "}]", "exemptions: [{user: ann, expires: " + lately + "}]", other},
	} {
		from, to := document(c.from), document(c.to)
		for _, way := range []struct {
			from, to *ruledoc.Document
			effect   effect
		}{{from, to, c.effect}, {to, from, c.effect.opposite()}} {
			r := New(way.from, way.to, now)
			if len(r.Entries) != 1 || len(r.Entries[0].Changes) != 1 || r.Entries[0].Changes[0].Effect != way.effect {
				t.Errorf("%s | %s: want %s, got %s", c.from, c.to, way.effect, r.String())
			}
		}
	}
}

// TestDiffReset checks the reported consequence for counters against the counter keys: rule, limit name and algorithm.
func TestDiffReset(t *testing.T) {
	t.Parallel()
	limits := []headgate.Limit{
		headgate.PerMinute(10), headgate.PerHour(10),
		headgate.Quota(10, headgate.Month, nil), headgate.Quota(9, headgate.Day, nil),
		{Algorithm: headgate.SlidingWindow, Count: 1, Window: time.Second},
		{Algorithm: headgate.SlidingLog, Count: 1, Window: time.Second},
		{Algorithm: headgate.FixedWindow, Count: 1, Window: time.Second},
		{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second},
	}
	for _, a := range limits {
		for _, b := range limits {
			_, consequence := compareLimits(&a, &b)
			same := headgate.CounterOf("r", "l", a.Algorithm) == headgate.CounterOf("r", "l", b.Algorithm)
			if continues := !strings.Contains(consequence, "reset"); continues != same {
				t.Errorf("%s, %s: %s", a, b, consequence)
			}
		}
	}
}

// TestDiffManyRules compares rules that all have different IDs: a comparison in quadratic time would not finish in time.
func TestDiffManyRules(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	many := func(prefix string) *ruledoc.Document {
		var b strings.Builder
		b.WriteString("rules:\n")
		for i := range 5_000 {
			fmt.Fprintf(&b, "  - {id: %s%d, match: {path: /p%d}, by: [ip], limit: 1/second}\n", prefix, i, i)
		}
		return parse(t, b.String())
	}
	r := New(many("a"), many("b"), time.Now())
	first := r.Entries[0].Changes[0].Consequence
	if len(r.Entries) != 10_000 || first != "looks like a rename to b0: counters reset" {
		t.Errorf("%d entries, %+v", len(r.Entries), r.Entries[0])
	}
}
