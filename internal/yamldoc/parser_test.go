package yamldoc

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// plainOf returns a tree as plain Go values, without positions and with every number replaced by a placeholder.
func plainOf(n *Node) any {
	switch n.Kind {
	case Null:
		return nil
	case Number:
		return "a number"
	case Boolean:
		return strings.EqualFold(n.Text, "true")
	case List:
		items := []any{}
		for _, item := range n.Items {
			items = append(items, plainOf(item))
		}
		return items
	case Mapping:
		entries := map[string]any{}
		for _, e := range n.Entries {
			entries[e.Key.Text] = plainOf(e.Value)
		}
		return entries
	}
	return n.Text
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

// TestParserAgreesWithLibrary uses the parser of the YAML library as the reference.
func TestParserAgreesWithLibrary(t *testing.T) {
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
	files, err := filepath.Glob("../../ruledoc/testdata/good/*")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if base := filepath.Base(file); base != "several_documents.yaml" && base != "windows.yaml" {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(data))
		}
	}
	for _, text := range texts {
		documents, problems := Parse(Source{Name: "x", Data: []byte(text)})
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
		"deep flow":            {strings.Repeat("[", 100_000), "1:33: values are nested more than 32 levels deep"},
		"deep block":           {strings.Repeat("- ", 100_000) + "a", "nested more than 32 levels deep"},
		"laughs":               {laughs(9), "the document has more than 2000000 values"},
		"anchor on a key":      {"- &x id: a\n", "1:3: this anchor would apply to the key only"},
		"anchor without value": {"a: &x\n", "1:4: the anchor has no value"},
		"anchor before a key":  {"a: &x\nb: c\n", "1:4: the anchor has no value"},
		"alias of itself":      {"a: &x [*x]\n", "1:8: anchor &x not found before this alias"},
		"alias as a key":       {"a: &x b\n*x : c\n", "2:1: an alias cannot be a key"},
		"alias over documents": {"a: &x b\n---\na: *x\n", "3:4: anchor &x not found"},
		"question mark":        {"? a\n: b\n", "1:1: complex keys are not supported"},
		"directive":            {"%YAML 1.2\n---\na: b\n", "1:1: a line that begins with % is a YAML directive"},
		"dash on the line":     {"a: - b\n", "1:4: a list with dashes must begin on its own line"},
		"pair in a list":       {"a: [b: c]\n", "missing , or ] before this"},
		"two commas":           {"a: [b,, c]\n", "1:7: unexpected comma"},
		"comma in a mapping":   {"a: {, c: d}\n", "1:5: unexpected comma"},
		"key without a value":  {"a: {b, c: d}\n", "1:6: \"b\": no value"},
		"too many brackets":    {"a: [b]]\n", "1:7: unexpected ]"},
		"bracket alone":        {"a: ]\n", "1:4: unexpected ]"},
		"text after a mapping": {"a: b\nc\n", "2:1: no colon after \"c\""},
		"list after a key":     {"a: b\n- c\n", "2:1: the indentation of this list matches no line above"},
		"key after a list":     {"- a\nb: c\n", "2:1: the indentation of this key matches no line above"},
		"reserved":             {"a: @b\n", "1:4: a value cannot begin with this character"},
		"escape":               {"a: \"\\q\"\n", "unknown escape within double quotes"},
		"tab in a value":       {"a: b\tc\n", "1:4: tab in an unquoted value"},
		"colon alone":          {": a\n", "1:1: no key before the colon"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := problemsOf(test.text).Error(); !strings.Contains(got, test.want) {
				t.Errorf("got %.300s\nwant %s", got, test.want)
			}
		})
	}
}

// problemsOf returns the problems of a text as if it were a file.
func problemsOf(text string) Errors {
	s, problem := Source{Name: "x", Data: []byte(text)}.Check()
	var r Report
	if problem != nil {
		r.Add(0, problem)
	}
	_, problems := Parse(s)
	for _, p := range problems {
		r.Add(0, p)
	}
	return r.Errors([]Source{s})
}

// laughs returns a "billion laughs" document: each level repeats the alias of the level below ten times.
func laughs(levels int) string {
	var b strings.Builder
	b.WriteString("x-0: &l0 [a, a]\n")
	for i := range levels {
		fmt.Fprintf(&b, "x-%d: &l%d [%s*l%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*l%d, ", i), 9), i)
	}
	return b.String()
}
