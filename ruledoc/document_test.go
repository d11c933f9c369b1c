package ruledoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func mustParse(t testing.TB, text string) *Document {
	t.Helper()
	d, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestEveryKey checks that every_key.yaml sets each field of package headgate's types to a value that is not the default.
// testdata/encoded has the values after decoding and encoding.
func TestEveryKey(t *testing.T) {
	t.Parallel()
	d := mustParse(t, string(fixtures(t, "good")["every_key.yaml"]))
	set := map[string]bool{}
	for _, value := range []any{d.Source, d.Overrides, d.Exemptions} {
		noteFields(set, reflect.ValueOf(value))
	}
	for field, ok := range set {
		if !ok {
			t.Errorf("%s is not set by any key of every_key.yaml", field)
		}
	}
	if len(set) < 60 {
		t.Errorf("only %d fields were checked", len(set))
	}
}

// noteFields records for all fields of the structs in a value, at any depth, whether one of the structs sets them.
func noteFields(set map[string]bool, v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			noteFields(set, v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			noteFields(set, v.MapIndex(key))
		}
	case reflect.Struct:
		if v.Type().PkgPath() != reflect.TypeFor[headgate.Rule]().PkgPath() {
			return
		}
		for i := range v.NumField() {
			name := v.Type().String() + "." + v.Type().Field(i).Name
			set[name] = set[name] || !v.Field(i).IsZero()
			noteFields(set, v.Field(i))
		}
	default: // has no fields
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]headgate.Limit{
		"10/second": headgate.PerSecond(10), "10/s": headgate.PerSecond(10), "3/250ms": headgate.Per(3, 250*time.Millisecond),
		"5/15m": headgate.Per(5, 15*time.Minute), "10_000/h": headgate.PerHour(10_000), "100/week": headgate.Per(100, 7*day),
		"1/30 days": headgate.Per(1, 30*24*time.Hour), "100 / 90 seconds": headgate.Per(100, 90*time.Second),
	} {
		d := mustParse(t, fmt.Sprintf("rules: [{id: a, by: [], limit: %q}]", text))
		if got := d.Source[0].Limit; got != want {
			t.Errorf("%s is %+v", text, got)
		}
	}
}

// TestReplacingLimitInheritsAlgorithm checks that a limit uses the algorithm of the limit that it replaces: another algorithm
// would use another counter.
func TestReplacingLimitInheritsAlgorithm(t *testing.T) {
	t.Parallel()
	d := mustParse(t, `
rules:
  - id: a
    by: [user]
    algorithm: sliding_window
    limit: 10/minute
    limits:
      log: {rate: 5/s, algorithm: sliding_log}
      window: {rate: 5/s, algorithm: fixed_window, align: clock}
      month: {quota: 100, calendar: month}
    tiers:
      gold: {limit: 20/minute, limits: {log: 6/s, window: 6/s, month: {quota: 200, calendar: month}}}
      iron: {limits: {log: {rate: 6/s, algorithm: token_bucket}}}
    candidate: {limits: {window: 7/s}}
overrides:
  - {rule: a, subject: {user: ann}, limit: 30/minute, limits: {log: 7/s}}
`)
	gold := d.Source[0].Tiers["gold"]
	onClock := func(n int64) headgate.Limit {
		return headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Window: time.Second, Align: headgate.OnClock}
	}
	for name, got := range map[string][2]headgate.Limit{
		"limit":     {gold.Limit, {Algorithm: headgate.SlidingWindow, Count: 20, Window: time.Minute}},
		"log":       {gold.Limits["log"], {Algorithm: headgate.SlidingLog, Count: 6, Window: time.Second}},
		"window":    {gold.Limits["window"], onClock(6)},
		"month":     {gold.Limits["month"], headgate.Quota(200, headgate.Month, nil)},
		"iron":      {d.Source[0].Tiers["iron"].Limits["log"], headgate.PerSecond(6)},
		"candidate": {d.Source[0].Candidate.Limits["window"], onClock(7)},
		"override":  {d.Overrides[0].Limit, {Algorithm: headgate.SlidingWindow, Count: 30, Window: time.Minute}},
		"overrides": {d.Overrides[0].Limits["log"], {Algorithm: headgate.SlidingLog, Count: 7, Window: time.Second}},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: got %+v, want %+v", name, got[0], got[1])
		}
	}
}

func TestStrictestModeApplies(t *testing.T) {
	t.Parallel()
	d := mustParse(t, "mode: shadow\n---\nrules: []\n---\nmode: enforce\n")
	if d.Mode != headgate.Shadow || !strings.HasSuffix(d.Rules.Version(), "+shadow") {
		t.Errorf("mode %s, version %s", d.Mode, d.Rules.Version())
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rule := func(id string) string { return "rules: [{id: " + id + ", by: [], limit: 1/s}]" }
	write("rules/b.yml", rule("b"))
	write("rules/a.yaml", rule("a"))
	write("rules/c.json", `{"rules": [{"id": "c", "by": [], "limit": "1/s"}]}`)
	write("rules/a_test.yaml", "tests: []")
	write("rules/.hidden.yaml", "broken: [")
	write("rules/README.md", "no rules")
	write("rules/deeper/d.yaml", rule("d"))
	if err := os.Symlink("deeper", filepath.Join(dir, "rules", "..data.yaml")); err != nil {
		t.Fatal(err)
	}
	single := write("single.rules", rule("e"))

	d, err := Load(filepath.Join(dir, "rules"), single)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range d.Source {
		ids = append(ids, r.ID)
	}
	if want := []string{"a", "b", "c", "e"}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}

	write("rules/d.yaml", rule("b"))
	_, err = Load(filepath.Join(dir, "rules"))
	want := fmt.Sprintf("%s:1:14: rule \"b\": id: duplicate: ids name counters and must be unique; "+
		"the other rule is at %s:1:14",
		filepath.Join(dir, "rules", "d.yaml"), filepath.Join(dir, "rules", "b.yml"))
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}

	for name, paths := range map[string][]string{
		"no file or directory given":                      nil,
		"no *.yaml, *.yml or *.json file in":              {filepath.Dir(write("empty/README.md", ""))},
		"no such file or directory":                       {filepath.Join(dir, "missing.yaml")},
		"the file is larger than 16 MB":                   {write("large.yaml", strings.Repeat("#", maxBytes+1))},
		"to run without rules, add a file with \"rules: ": {filepath.Join(dir, "empty")},
	} {
		if _, err := Load(paths...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	_, err := Parse("a.yaml", []byte("rules:\n  - id: x\n    by: [ip]\n    limt: 1/s\n"))
	var all Errors
	if !errors.As(err, &all) || len(all) != 1 {
		t.Fatalf("%T: %v", err, err)
	}
	var one *Error
	if !errors.As(err, &one) || one != all[0] {
		t.Errorf("%v does not hold %v", err, all[0])
	}
	got, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"file":"a.yaml","line":4,"column":5,"rule":"x",` +
		`"problem":"unknown key \"limt\"; did you mean \"limit\"?","excerpt":"    limt: 1/s\n    ^"}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestParseRule(t *testing.T) {
	t.Parallel()
	r, err := ParseRule("search", []byte(`{"id": "search", "when": "user == \"x\"", "by": ["user"], "limit": "10/minute"}`))
	if err != nil || r.ID != "search" || !r.When.Holds(headgate.Attributes{"user": "x"}) {
		t.Errorf("%v: %+v", err, r)
	}
	if r, err := ParseRule("reports", []byte("{id: reports, counter: units, cost: 1_000_000}")); err != nil || r.Counter != "units" || r.By != nil {
		t.Errorf("%v: %+v", err, r)
	}
	for text, want := range map[string]string{
		"":                                 "search:1:1: no rule found: write its keys and values (id, by, limit …)",
		"[{id: a}]":                        "search:1:1: a rule must be a mapping of keys to values (id, by, limit …), not a list",
		"id: a\nby: [ip]\nlimit: 10/minut": "search:3:8: rule \"a\": limit: unknown unit \"minut\"; did you mean 10/minute?",
		"id: a\nby: [ipp]\nlimit: 1/s":     "search:2:6: rule \"a\": by: unknown attribute \"ipp\"; did you mean ip?",
		"{id: a, counter: b c}":            "search:1:18: rule \"a\": counter: character ' ': must be a letter, a digit or one of -_.:/",
		"{id: a, counter: a}":              "search:1:18: rule \"a\": counter: names the rule itself: remove it, or write the id of another rule",
		"{id: a, by: [], limit: 1/s}\n---\nid: b\n": "search:3:1: only one document is allowed here: remove this one",
	} {
		_, err := ParseRule("search", []byte(text))
		var all Errors
		if !errors.As(err, &all) || len(all) != 1 || strings.Split(err.Error(), "\n")[0] != want {
			t.Errorf("%s: got  %v\nwant %s", text, err, want)
		}
	}
}

func TestNumberOfErrorsIsBounded(t *testing.T) {
	t.Parallel()
	_, err := Parse("a.yaml", []byte("rules:\n"+strings.Repeat("  - {id: x, by: [ip], limt: 1/s}\n", 5000)))
	const reported = 200
	var all Errors
	if !errors.As(err, &all) || len(all) != reported+1 {
		t.Fatalf("%d errors", len(all))
	}
	if last := all[reported].Problem; !strings.HasSuffix(last, "more problems after this one") {
		t.Error(last)
	}
}

// tenThousand returns a file of 10,000 rules; every tenth has its own condition.
func tenThousand() []byte {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "  - id: rule-%d\n", i)
		fmt.Fprintf(&b, "    match: {path: \"/api/v%d/{id}/**\", method: [GET, POST], tenant: t%d}\n", i%50, i)
		fmt.Fprintf(&b, "    by: [tenant, user]\n    limits:\n      peak: {rate: %d/second, burst: 20}\n", i%100+1)
		b.WriteString("      day: {quota: 1000, calendar: day, timezone: Europe/Berlin}\n")
		b.WriteString("    tiers:\n      free: {limits: {peak: 1/second}}\n")
		if i%10 == 0 {
			fmt.Fprintf(&b, "    when: user_agent.startsWith(\"app-%d/\") && !(region in [\"eu\", \"uk\"])\n", i)
		}
	}
	return []byte(b.String())
}

func BenchmarkParse10000(b *testing.B) {
	data := tenThousand()
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Parse("rules.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile10000 measures most of the cost of changing one rule among 10,000: one is parsed, all are compiled.
func BenchmarkCompile10000(b *testing.B) {
	rules := mustParse(b, string(tenThousand())).Source
	b.ReportAllocs()
	for b.Loop() {
		if _, err := headgate.Compile(rules...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRule(b *testing.B) {
	rules := mustParse(b, string(tenThousand())).Source
	for name, rule := range map[string]headgate.Rule{"plain": rules[1], "with a condition": rules[0]} {
		document, err := EncodeRule(rule)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("parse/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseRule("rule", document); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("encode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := EncodeRule(rule); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, dir := range []string{"good", "bad"} {
		for _, data := range fixtures(f, dir) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("fuzz.yaml", data)
		if err == nil {
			if again, err := Parse("fuzz.yaml", data); err != nil || again.Rules.Version() != d.Rules.Version() {
				t.Errorf("parsed again: %v", err)
			}
			return
		}
		var all Errors
		if !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		checked, _ := check(source{Name: "fuzz.yaml", Data: data})
		lines := strings.Split(string(checked.Data), "\n")
		for _, e := range all {
			inside := e.Line >= 1 && e.Line <= len(lines) && e.Column >= 1 && e.Column <= len([]rune(lines[e.Line-1]))+1
			if e.Problem == "" || !inside {
				t.Errorf("%d:%d is not in the file: %s", e.Line, e.Column, e.Problem)
			}
		}
	})
}
