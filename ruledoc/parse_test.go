package ruledoc

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "regenerate the golden files")

// fixtures returns the files in testdata/<dir> with their content, by name.
func fixtures(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("testdata", dir))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".txt" {
			continue
		}
		data, err := os.ReadFile(filepath.Join("testdata", dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = data
	}
	return files
}

func TestGoldenGood(t *testing.T) {
	t.Parallel()
	for name, data := range fixtures(t, "good") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Parse(name, data); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGoldenBad compares the exact text of every error: users read them more often than the code.
func TestGoldenBad(t *testing.T) {
	t.Parallel()
	for name, data := range fixtures(t, "bad") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(name, data)
			if err == nil {
				t.Fatal("no error")
			}
			got := err.Error() + "\n"
			golden := filepath.Join("testdata", "bad", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; create it with -update", err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if strings.Contains(got, "\x1b") {
				t.Error("the error has escape sequences")
			}
		})
	}
}

// TestParseIsLinear checks that the time to parse grows linearly with the size of a document. Some of these took half a minute
// when it was quadratic.
func TestParseIsLinear(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	repeat := strings.Repeat
	for name, shape := range map[string]struct {
		n    int
		text func(n int) string
	}{
		"keys": {50_000, func(n int) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, "k%d:\n", i)
			}
			return b.String()
		}},
		"same keys":     {50_000, func(n int) string { return repeat("a:\n", n) }},
		"flow nulls":    {50_000, func(n int) string { return "a: {" + repeat("a:,", n) + "}" }},
		"colons":        {50_000, func(n int) string { return repeat("a: ", n) }},
		"quotes":        {50_000, func(n int) string { return repeat("\"a\" ", n) }},
		"commas":        {50_000, func(n int) string { return "a: [" + repeat(",", n) }},
		"open brackets": {50_000, func(n int) string { return repeat("[", n) }},
		"aliases":       {50_000, func(n int) string { return "x-a: &a [b]\nrules:\n" + repeat("- *a\n", n) }},
		"wrong rules":   {20_000, func(n int) string { return "rules:\n" + repeat("- {id: a}\n", n) }},
		"wrong limits":  {20_000, func(n int) string { return "rules: [{id: a, by: [], limits: {" + repeat("a: 1/s, ", n) + "}}]" }},
		"unknown keys":  {20_000, func(n int) string { return "rules: [{" + repeat("abcdefghij: 1, ", n) + "}]" }},
		"one long line": {100_000, func(n int) string { return "a: '" + repeat("é", n) }},
		"one long value": {50_000, func(n int) string {
			return "rules: [{id: a, by: [], when: '" + repeat("(", n) + "'}]"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			parse := func(n int) time.Duration {
				began := time.Now()
				_, err := Parse("x", []byte(shape.text(n)))
				if err == nil {
					t.Error("no error")
				} else if len(err.Error()) > 200_000 {
					t.Errorf("the error is %d bytes long", len(err.Error()))
				}
				return time.Since(began)
			}
			whole := parse(shape.n)
			if whole < time.Second {
				return
			}
			// Quadratic time would take sixteen times as long. The best of three counts, because a busy machine may be slow at any time.
			ratio := math.Inf(1)
			for range 3 {
				ratio = min(ratio, float64(whole)/float64(parse(shape.n/4)))
				whole = min(whole, parse(shape.n))
			}
			t.Logf("%s, %.1f times as long as a quarter of the size", whole, ratio)
			if ratio > 10 {
				t.Errorf("four times the size takes %.1f times as long", ratio)
			}
		})
	}
}
