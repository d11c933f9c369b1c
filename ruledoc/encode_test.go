package ruledoc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate"
)

// checkRoundTrip encodes a document and its rules and parses them again: the meaning and the encoding must not change.
func checkRoundTrip(t testing.TB, d *Document) {
	t.Helper()
	text, err := d.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if again.Rules.Version() != d.Rules.Version() {
		t.Fatalf("version %s became %s:\n%s\n%+v\n%+v", d.Rules.Version(), again.Rules.Version(), text, d.Source, again.Source)
	}
	if got, want := exceptionsText(again), exceptionsText(d); got != want {
		t.Fatalf("%s\ngot  %s\nwant %s", text, got, want)
	}
	if twice, err := again.YAML(); err != nil || !bytes.Equal(twice, text) {
		t.Fatalf("%v: encoded again:\n%s\nwant\n%s", err, twice, text)
	}
	for _, r := range d.Source {
		checkRuleRoundTrip(t, r)
	}
}

// exceptionsText formats all overrides and exemptions.
func exceptionsText(d *Document) string {
	var b strings.Builder
	for _, o := range d.Overrides {
		o.Expires = o.Expires.UTC()
		fmt.Fprintf(&b, "%+v\n", o)
	}
	for _, x := range d.Exemptions {
		x.Expires = x.Expires.UTC()
		fmt.Fprintf(&b, "%+v\n", x)
	}
	return b.String()
}

func checkRuleRoundTrip(t testing.TB, r headgate.Rule) []byte {
	t.Helper()
	document, err := EncodeRule(r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseRule(r.ID, document)
	if err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	if before, after := version(t, r), version(t, again); before != after {
		t.Fatalf("%s became another rule: %s\n%+v\n%+v", r.ID, document, r, again)
	}
	if twice, err := EncodeRule(again); err != nil || !bytes.Equal(twice, document) {
		t.Fatalf("%v: encoded again:\n%s\nwant\n%s", err, twice, document)
	}
	return document
}

func version(t testing.TB, r headgate.Rule) string {
	t.Helper()
	set, err := compileAlone(r)
	if err != nil {
		t.Fatal(err)
	}
	return set.Version()
}

func TestGoodDocumentsRoundTrip(t *testing.T) {
	t.Parallel()
	files := fixtures(t, "good")
	for _, page := range []string{"docs/rules.md", "docs/cookbook.md"} {
		text, err := os.ReadFile("../" + page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range bytes.Split(text, []byte("```")) {
			if code, ok := bytes.CutPrefix(block, []byte("yaml\n")); ok && i%2 == 1 && !bytes.HasPrefix(code, []byte("tests:")) {
				files[fmt.Sprintf("%s, block %d", page, i)] = code
			}
		}
	}
	if len(files) < 30 {
		t.Fatalf("only %d files", len(files))
	}
	compiled := compiledSchema(t)
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mustParse(t, string(data))
			checkRoundTrip(t, d)
			text, _ := d.YAML()
			values, err := valuesOf(text)
			if err != nil {
				t.Fatalf("YAML library: %v\n%s", err, text)
			}
			if err := compiled.Validate(values[0]); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// TestGoldenEncoded compares the exact encoding of documents in YAML and of their rules in JSON.
func TestGoldenEncoded(t *testing.T) {
	t.Parallel()
	for name, data := range fixtures(t, "encoded") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document := name
			if filepath.Ext(name) == ".jsonl" {
				document = strings.TrimSuffix(name, ".jsonl") + ".yaml"
			}
			source, err := os.ReadFile(filepath.Join("testdata", "good", document))
			if err != nil {
				t.Fatal(err)
			}
			d := mustParse(t, string(source))
			got, err := d.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if document != name {
				got = nil
				for _, r := range d.Source {
					got = append(append(got, checkRuleRoundTrip(t, r)...), '\n')
				}
			}
			if *update {
				if err := os.WriteFile(filepath.Join("testdata", "encoded", name), got, 0o600); err != nil {
					t.Fatal(err)
				}
			} else if !bytes.Equal(got, data) {
				t.Errorf("got:\n%s\nwant:\n%s", got, data)
			}
		})
	}
}

func TestEveryKeyIsEncoded(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, r := range mustParse(t, string(fixtures(t, "good")["every_key.yaml"])).Source {
		if r.ID == "exports" {
			r.Limit.Algorithm, r.Limit.Burst = headgate.LeakyBucket, 0 // so that the rule's algorithm is not the default
		}
		n, _, err := encodeRule(r)
		if err != nil {
			t.Fatal(err)
		}
		last := -1
		for _, e := range n.Entries {
			i := slices.Index(ruleKeys.keys(), e.Key.Text)
			if i <= last {
				t.Errorf("%s is out of order", e.Key.Text)
			}
			last = i
			keys = append(keys, e.Key.Text)
		}
	}
	for _, key := range ruleKeys.keys() {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is not encoded", key)
		}
	}
}

func TestRandomRulesRoundTrip(t *testing.T) {
	t.Parallel()
	documents, rules := 800, 0
	if testing.Short() {
		documents = 200
	}
	compiled := compiledSchema(t)
	for seed := range documents {
		w := generator{rand.New(rand.NewPCG(uint64(seed), 7))}
		d := &Document{Mode: headgate.Mode(w.IntN(3))}
		for i := range w.IntN(6) {
			r := w.rule(fmt.Sprintf("r%d", i))
			if _, err := headgate.Compile(r); err != nil {
				if _, again := EncodeRule(r); again == nil || again.Error() != err.Error() {
					t.Fatalf("seed %d: Compile: %v; EncodeRule: %v", seed, err, again)
				}
				continue
			}
			d.Source = append(d.Source, r)
			w.exceptions(d, r)
			if w.maybe() {
				b := headgate.Rule{ID: "b" + r.ID, Counter: r.ID, Match: w.match(), Mode: pick(w, headgate.Enforce, headgate.Off)}
				d.Source = append(d.Source, b)
				d.Exemptions = append(d.Exemptions, headgate.Exemption{Rule: b.ID, Attribute: "user", Value: w.text()})
			}
		}
		set, err := headgate.Compile(d.Source...)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		d.Rules = set.WithMode(d.Mode)
		rules += len(d.Source)
		checkRoundTrip(t, d)
		text, _ := d.YAML()
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			t.Fatalf("seed %d: YAML library: %v\n%s", seed, err, text)
		}
		if err := compiled.Validate(value); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
	}
	t.Logf("%d documents with %d rules", documents, rules)
	if rules < documents {
		t.Error("too few rules")
	}
}

// FuzzText uses any text for every text value of a rule, an override and an exemption.
func FuzzText(f *testing.F) {
	for _, s := range ambiguousTexts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := headgate.Rule{
			ID: "a", By: []string{"user"}, Description: s, Labels: map[string]string{s: s}, Limit: headgate.PerMinute(1),
			Match: headgate.Match{Attributes: map[string]headgate.Pattern{
				"tenant": headgate.NoneOf(s, "a"), "tier": headgate.OneOf(s),
			}},
			Tiers: map[string]headgate.Plan{s: {Limit: headgate.PerMinute(2)}},
		}
		set, err := headgate.Compile(r)
		if err != nil || !utf8.ValidString(s) {
			if document, err := EncodeRule(r); err == nil {
				t.Fatalf("%s", document)
			}
			return
		}
		checkRoundTrip(t, &Document{
			Rules: set, Source: []headgate.Rule{r},
			Overrides: []headgate.Override{
				{Rule: "a", Subject: headgate.Attributes{"user": s}, Limit: headgate.PerMinute(3), Reason: s},
			},
			Exemptions: []headgate.Exemption{{Attribute: "user", Value: s, Reason: s}},
		})
	})
}

func TestEncodeErrors(t *testing.T) {
	t.Parallel()
	good := headgate.Rule{ID: "a", By: []string{"ip"}, Limit: headgate.PerMinute(1)}
	for want, change := range map[string]func(*headgate.Rule){
		`rule "a": by: required`:                     func(r *headgate.Rule) { r.By = nil },
		`rule "a": description: "\xff" is not UTF-8`: func(r *headgate.Rule) { r.Description = "\xff" },
		`rule "a": labels: "\xff" is not UTF-8`:      func(r *headgate.Rule) { r.Labels = map[string]string{"\xff": ""} },
		`rule "a": when: the condition has no CEL text and cannot be encoded`: func(r *headgate.Rule) {
			r.When.Holds = func(headgate.Attributes) bool { return true }
		},
		`rule "a": limit: window 1.5ms: must be a whole number of milliseconds to be encoded`: func(r *headgate.Rule) {
			r.Limit.Window = 1500 * time.Microsecond
		},
		`rule "a": tiers.x.limit: window 1.5ms`: func(r *headgate.Rule) {
			r.Tiers = map[string]headgate.Plan{"x": {Limit: headgate.Per(1, 1500*time.Microsecond)}}
		},
		`rule "a": limits.b: time zone "here" cannot be encoded`: func(r *headgate.Rule) {
			r.Limits = map[string]headgate.Limit{"b": headgate.Quota(1, headgate.Day, time.FixedZone("here", 60))}
		},
		`rule "a": limits.b: time zone "Local" cannot be encoded`: func(r *headgate.Rule) {
			r.Limits = map[string]headgate.Limit{"b": headgate.Quota(1, headgate.Day, time.Local)}
		},
	} {
		r := good
		change(&r)
		if document, err := EncodeRule(r); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v (%s), want %s", err, document, want)
		}
	}
	for want, d := range map[string]*Document{
		`override: rule "b" not found in the document`: {Overrides: []headgate.Override{{Rule: "b"}}},
		`override of rule "a": limit: count 0`: {
			Source: []headgate.Rule{good}, Overrides: []headgate.Override{{Rule: "a", Limit: headgate.Limit{Align: 9}}},
		},
		`exemption: rule "b" not found in the document`: {Exemptions: []headgate.Exemption{{Rule: "b"}}},
	} {
		if text, err := d.YAML(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v (%s), want %s", err, text, want)
		}
	}
}
