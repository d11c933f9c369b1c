package ruledoc

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// plainOf is a tree without places, with numbers left out of account.
func plainOf(n *node) any {
	switch n.kind {
	case nothing:
		return nil
	case number:
		return "a number"
	case boolean:
		return strings.EqualFold(n.text, "true")
	case list:
		items := []any{}
		for _, item := range n.items {
			items = append(items, plainOf(item))
		}
		return items
	case mapping:
		entries := map[string]any{}
		for _, e := range n.entries {
			entries[e.key.text] = plainOf(e.value)
		}
		return entries
	}
	return n.text
}

func plainOfLibrary(v any) any {
	switch v := v.(type) {
	case []any:
		items := []any{}
		for _, item := range v {
			items = append(items, plainOfLibrary(item))
		}
		return items
	case map[string]any:
		entries := map[string]any{}
		for key, item := range v {
			entries[key] = plainOfLibrary(item)
		}
		return entries
	case int, int64, uint64, float64:
		return "a number"
	}
	return v
}

// The library's own parser is the reference for what a text means.
func TestYAMLMeansTheSame(t *testing.T) {
	t.Parallel()
	texts := []string{
		"a: b\nc: [1, 'two', \"thr\\u0065e\", {d: e}]\n",
		"a:\n- x\n-   y: 1\n    z: 2\n-\n  - deep\n- - also\n  - deep\n",
		"a: |\n    foo &&\n      bar\n\n    baz\nb: >-\n  one\n  two\n\n  three\nc: |+\n  kept\n\nd: |2\n    x\n",
		"a: plain over\n   two lines\nb: \"quoted over\n   two lines\"\nc: 'it''s'\n",
		"a:\nb: ~\nc: null\nd: {e: , f: null}\n",
		"a: &x {b: [1, 2]}\nc: *x\nd: &y text\ne: [*y, *x]\n",
		"{\"a\":{\"b\":[1,2.5,true,null,\"c:d\"]},\"e\":\"\\/\\n\"}",
		"{\n\t\"a\": [\n\t\t{\"b\": 1},\n\t\t{\"c\": 2}\n\t]\n}\n",
		"# comment\na: b # comment\n# comment\nc: http://x/y#z\n",
		"a: {\n  b: c,\n  d: [\n    e,\n  ]\n}\nf: g\n",
		"\"quoted key\": 1\n'single': 2\nwith space: 3\nfalse: 4\n1: 5\n",
		"a:\n  b:\n    c:\n      - d: e\n        f:\n          g: h\n      - i\n    j: k\nl: m\n",
		"a: yes\nb: on\nc: 0x1F\nd: 1_000\ne: 012\nf: 2026-12-04T18:00:00Z\ng: 10/minute\nh: True\n",
		"- a\n- b: c\n  d: e\n",
		"a: b\n\n\n\nc:   d   \n",
	}
	for name, data := range fixtures(t, "good") {
		if name != "several_documents.yaml" && name != "windows.yaml" {
			texts = append(texts, string(data))
		}
	}
	for _, text := range texts {
		documents, problems := parseYAML(source{"x", []byte(text)})
		if len(problems) > 0 || len(documents) != 1 {
			t.Errorf("%q: %v", text, problems)
			continue
		}
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, want := plainOf(documents[0]), plainOfLibrary(value); !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\ngot  %#v\nwant %#v", text, got, want)
		}
	}
}

func TestYAMLProblems(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"deep flow":            {strings.Repeat("[", 100_000), "1:33: values are nested more than 32 deep"},
		"deep block":           {strings.Repeat("- ", 100_000) + "a", "nested more than 32 deep"},
		"laughs":               {laughs(9), "the document holds more than 2000000 values"},
		"anchor on a key":      {"- &x id: a\n", "1:3: an anchor here would name the key alone"},
		"anchor without value": {"a: &x\n", "1:4: the anchor has no value"},
		"anchor before a key":  {"a: &x\nb: c\n", "1:4: the anchor has no value"},
		"alias of itself":      {"a: &x [*x]\n", "1:8: there is no anchor &x before this"},
		"alias as a key":       {"a: &x b\n*x : c\n", "2:1: an alias cannot be a key"},
		"alias over documents": {"a: &x b\n---\na: *x\n", "3:4: there is no anchor &x"},
		"question mark":        {"? a\n: b\n", "1:1: a key is written without a question mark"},
		"directive":            {"%YAML 1.2\n---\na: b\n", "1:1: a line that begins with % is a directive"},
		"dash on the line":     {"a: - b\n", "1:4: a list with dashes begins on a line of its own"},
		"pair in a list":       {"a: [b: c]\n", "there is a , or ] missing before this"},
		"two commas":           {"a: [b,, c]\n", "1:7: there is a comma too many"},
		"comma in a mapping":   {"a: {, c: d}\n", "1:5: there is a comma too many"},
		"key without a value":  {"a: {b, c: d}\n", "1:6: \"b\" has no value"},
		"too many brackets":    {"a: [b]]\n", "1:7: there is a ] too many"},
		"bracket alone":        {"a: ]\n", "1:4: there is a ] too many"},
		"text after a mapping": {"a: b\nc\n", "2:1: \"c\" is not followed by a colon"},
		"list after a key":     {"a: b\n- c\n", "2:1: this list is indented like nothing above it"},
		"key after a list":     {"- a\nb: c\n", "2:1: this key is indented like nothing above it"},
		"reserved":             {"a: @b\n", "1:4: a value cannot begin with this character"},
		"escape":               {"a: \"\\q\"\n", "there is no such escape within double quotes"},
		"tab in a value":       {"a: b\tc\n", "1:4: there is a tab in this value"},
		"colon alone":          {": a\n", "1:1: there is no key before the colon"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("x", []byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %.300v\nwant %s", err, test.want)
			}
		})
	}
}

// laughs is a document whose aliases repeat each other 10 times, level by level.
func laughs(levels int) string {
	var b strings.Builder
	b.WriteString("x-0: &l0 [a, a]\n")
	for i := range levels {
		fmt.Fprintf(&b, "x-%d: &l%d [%s*l%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*l%d, ", i), 9), i)
	}
	return b.String()
}

// Time must grow with the size of a document, not with its square: some of these took half a minute when it did.
func TestYAMLIsLinear(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"keys": func() string {
			var b strings.Builder
			for i := range 50_000 {
				fmt.Fprintf(&b, "k%d:\n", i)
			}
			return b.String()
		}(),
		"same keys":      strings.Repeat("a:\n", 50_000),
		"flow nulls":     "a: {" + strings.Repeat("a:,", 50_000) + "}",
		"colons":         strings.Repeat("a: ", 50_000),
		"quotes":         strings.Repeat("\"a\" ", 50_000),
		"commas":         "a: [" + strings.Repeat(",", 50_000),
		"open brackets":  strings.Repeat("[", 50_000),
		"aliases":        "x-a: &a [b]\nrules:\n" + strings.Repeat("- *a\n", 50_000),
		"wrong rules":    "rules:\n" + strings.Repeat("- {id: a}\n", 20_000),
		"wrong limits":   "rules: [{id: a, by: [], limits: {" + strings.Repeat("a: 1/s, ", 20_000) + "}}]",
		"unknown keys":   "rules: [{" + strings.Repeat("abcdefghij: 1, ", 20_000) + "}]",
		"one long line":  "a: '" + strings.Repeat("é", 100_000),
		"one long value": "rules: [{id: a, by: [], when: '" + strings.Repeat("(", 50_000) + "'}]",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := Parse("x", []byte(text))
			if err == nil {
				t.Error("no error")
			} else if len(err.Error()) > 200_000 {
				t.Errorf("the error is %d bytes long", len(err.Error()))
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %s", took)
			} else {
				t.Log(took)
			}
		})
	}
}
