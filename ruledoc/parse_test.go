package ruledoc

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fixtures are the names of files in testdata/<dir>, with their content.
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

// TestGoldenBad holds every message to the letter: they are read more often than the code.
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
				t.Fatalf("%v; write it with -update", err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if strings.Contains(got, "\x1b") {
				t.Error("the message has colours")
			}
		})
	}
}

// Time must grow with the size of a document, not with its square: some of these took half a minute when it did.
func TestParseIsLinear(t *testing.T) {
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
