package ruledoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestFlat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]headgate.Rule{
		`{"name": "default_per_key", "scope": "global", "algorithm": "sliding_window_counter", "maxRequests": 100,
			"windowSeconds": 60, "priority": 10}`: {
			ID: "default_per_key", By: []string{"client"}, Priority: 10,
			Limit: headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 100, Window: time.Minute},
		},
		`{"name": "a", "scope": "tenant", "tenantId": "acme", "tier": "gold", "maxRequests": 5,
			"windowSeconds": 0.25, "burstCapacity": 7}`: {
			ID: "a", By: []string{"tenant", "client"},
			Match: headgate.Match{Attributes: map[string]headgate.Pattern{
				"tenant": headgate.OneOf("acme"), "tier": headgate.OneOf("gold"),
			}},
			Limit: headgate.Limit{Count: 5, Window: 250 * time.Millisecond, Burst: 7},
		},
		`{"name": "b", "scope": "endpoint", "httpMethod": "POST", "pathPattern": "/users/{id}/**",
			"algorithm": "sliding_window_log", "maxRequests": 1, "windowSeconds": 31622400, "enabled": false}`: {
			ID: "b", By: []string{"client", "path", "method"}, Match: headgate.Match{Path: "/users/{id}/**", Method: "POST"},
			Limit: headgate.Limit{Algorithm: headgate.SlidingLog, Count: 1, Window: 366 * day},
		},
	} {
		f, err := ParseFlat([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Rule()
		if err != nil {
			t.Fatal(err)
		}
		if version(t, got) != version(t, want) || got.Limit != want.Limit {
			t.Errorf("%s\ngot  %+v\nwant %+v", text, got, want)
		}
		if f.Enabled == strings.Contains(text, "false") {
			t.Errorf("%s: enabled is %t", text, f.Enabled)
		}
		// JSON encoding returns all input keys.
		back, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var sent, returned map[string]any
		if err := errors.Join(json.Unmarshal([]byte(text), &sent), json.Unmarshal(back, &returned)); err != nil {
			t.Fatal(err)
		}
		for key, value := range sent {
			if returned[key] != value {
				t.Errorf("%s is encoded as %s", text, back)
			}
		}
		// Converting the rule back loses only the values that the rule does not have.
		f.Algorithm, f.Enabled = got.Limit.Algorithm.String(), true
		if again := FlatOf(got); again != f {
			t.Errorf("got  %+v\nwant %+v", again, f)
		}
		if again := FlatOf(parsed(t, got)); again != f {
			t.Errorf("encoded and parsed: got  %+v\nwant %+v", again, f)
		}
	}
}

func parsed(t testing.TB, r headgate.Rule) headgate.Rule {
	t.Helper()
	again, err := ParseRule(r.ID, checkRuleRoundTrip(t, r))
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestFlatDocumentation checks the documentation's example of a flat rule and its rule.
func TestFlatDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks [][]byte
	for _, block := range bytes.Split(text, []byte("```")) {
		if code, ok := bytes.CutPrefix(block, []byte("json\n")); ok {
			blocks = append(blocks, code)
		}
	}
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of JSON", len(blocks))
	}
	f, err := ParseFlat(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Rule()
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, blocks[1]); err != nil {
		t.Fatal(err)
	}
	if document := checkRuleRoundTrip(t, got); string(document) != want.String() {
		t.Errorf("got  %s\nwant %s", document, &want)
	}
}

// TestFlatErrors compares the exact text of every error. A case is a rule, a line of dashes, its errors and an empty line.
func TestFlatErrors(t *testing.T) {
	t.Parallel()
	const golden = "testdata/flat/errors.txt"
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	for one := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n\n"), "\n\n") {
		text, want, _ := strings.Cut(one, "\n---")
		_, err := ParseFlat([]byte(text))
		if _, ok := errors.AsType[Errors](err); !ok {
			t.Fatalf("%s: %v", text, err)
		}
		if got := "\n" + err.Error(); got != want && !*update {
			t.Errorf("%s\ngot: %s\nwant:%s", text, got, want)
		}
		fmt.Fprintf(&written, "%s\n---\n%s\n\n", text, err)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(written.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFlatRuleErrors checks a Flat that was not parsed: it has no positions, and may hold values that JSON does not have.
func TestFlatRuleErrors(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Flat){
		"maxRequests: count -1: must be 1 to 1000000000": func(f *Flat) { f.MaxRequests = -1 },
		"priority -1: must be 0 for none, or above 0":    func(f *Flat) { f.Priority = -1 },
		"windowSeconds NaN: must be 0.001 to 31622400 (366 days), with at most three decimals": func(f *Flat) {
			f.WindowSeconds = math.NaN()
		},
		"windowSeconds +Inf: must be 0.001 to 31622400 (366 days), with at most three decimals": func(f *Flat) {
			f.WindowSeconds = math.Inf(1)
		},
		"algorithm: must be one of token_bucket, leaky_bucket, fixed_window, sliding_window, sliding_log, not \"x\"\n" +
			"rule \"a\": maxRequests: missing or 0: write the number of requests that are allowed per windowSeconds": func(f *Flat) {
			f.Algorithm, f.MaxRequests = "x", 0
		},
	} {
		f := Flat{Name: "a", Scope: "global", MaxRequests: 1, WindowSeconds: 1}
		change(&f)
		if _, err := f.Rule(); err == nil || err.Error() != "rule \"a\": "+want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestFlatOfOtherRules converts rules that the flat form cannot express completely.
func TestFlatOfOtherRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Flat{
		"{id: a, by: [client], limit: 10/minute, match: {tenant: acme}}": {
			Scope: "global", TenantID: "acme", Algorithm: "token_bucket", MaxRequests: 10, WindowSeconds: 60,
		},
		"{id: a, by: [user], limit: 10/minute, match: {tenant: acme}}": {
			Scope: "global", TenantID: "acme", Algorithm: "token_bucket", MaxRequests: 10, WindowSeconds: 60,
		},
		"{id: a, by: [client, tenant], limit: {rate: 10/minute, burst: 5}}": {
			Scope: "tenant", Algorithm: "token_bucket", MaxRequests: 10, WindowSeconds: 60, BurstCapacity: 5,
		},
		"{id: a, by: [method], limit: 10/hour, match: {tenant: acme}}": {
			Scope: "endpoint", TenantID: "acme", Algorithm: "token_bucket", MaxRequests: 10, WindowSeconds: 3600,
		},
		"{id: a, by: [route], limit: 10/hour, match: {tenant: [acme, b], path: [/a]}}": {
			Scope: "endpoint", PathPattern: "/a", Algorithm: "token_bucket", MaxRequests: 10, WindowSeconds: 3600,
		},
		"{id: a, counter: b, match: {tenant: acme, method: GET}, cost: 5}": {Scope: "global", TenantID: "acme", HTTPMethod: "GET"},
		"{id: a, by: [client], limit: 10/minute, mode: shadow}": {
			Scope: "global", Algorithm: "token_bucket", MaxRequests: 10, WindowSeconds: 60,
		},
		"{id: a, by: [client], limit: 10/minute, when: user == \"x\", priority: 3}": {
			Scope: "global", Algorithm: "token_bucket", MaxRequests: 10, WindowSeconds: 60, Priority: 3,
		},
		"{id: a, by: [client], limits: {b: 10/s, a: {quota: 10, calendar: month}}}": {
			Scope: "global", Algorithm: "fixed_window", MaxRequests: 10,
		},
		"{id: a, by: [client], limit: {rate: 10/s, algorithm: fixed_window, align: clock}}": {
			Scope: "global", Algorithm: "fixed_window", MaxRequests: 10, WindowSeconds: 1,
		},
	} {
		r, err := ParseRule("a", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		want.Name, want.Enabled = "a", true
		if got := FlatOf(r); got != want {
			t.Errorf("%s\ngot  %+v\nwant %+v", text, got, want)
		}
	}
}

func TestFlatEqual(t *testing.T) {
	t.Parallel()
	f := Flat{Name: "a", Scope: "global", Algorithm: "sliding_window", MaxRequests: 5, WindowSeconds: 1}
	same, other := f, f
	same.Algorithm, same.BurstCapacity = "sliding_window_counter", 5
	other.BurstCapacity = 4
	if !f.Equal(same) || f.Equal(other) || (Flat{Algorithm: "x"}).Equal(Flat{Algorithm: "y"}) {
		t.Errorf("%+v, %+v, %+v", f, same, other)
	}
	if !(Flat{}).Equal(Flat{Algorithm: "token_bucket"}) {
		t.Error("token_bucket is not the default")
	}
}

// name returns a text or "". It has no DEL, which JSON allows but documents reject.
func (w generator) name() string { return strings.ReplaceAll(pick(w, "", w.text()), "\x7f", "") }

func TestRandomFlatRulesRoundTrip(t *testing.T) {
	t.Parallel()
	w := generator{rand.New(rand.NewPCG(1, 2))}
	for range 500 {
		l := w.limit(headgate.TokenBucket, headgate.SlidingWindow, headgate.SlidingLog, headgate.LeakyBucket)
		f := Flat{
			Name: "a", Scope: pick(w, scopeNames...), TenantID: w.name(), Tier: w.name(),
			HTTPMethod: pick(w, "", "GET"), PathPattern: pick(w, "", "/a", "/{x}/**"), Algorithm: l.Algorithm.String(),
			MaxRequests: l.Count, WindowSeconds: l.Window.Seconds(), BurstCapacity: l.Burst, Priority: w.IntN(3), Enabled: true,
		}
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ParseFlat(data)
		if err != nil || read != f {
			t.Fatalf("%v\n%s\n%+v", err, data, read)
		}
		r, err := f.Rule()
		if err != nil {
			t.Fatal(err)
		}
		if again := FlatOf(r); again != f {
			t.Fatalf("got  %+v\nwant %+v", again, f)
		}
		if again := FlatOf(parsed(t, r)); !again.Equal(f) {
			t.Fatalf("got  %+v\nwant %+v", again, f)
		}
	}
}
