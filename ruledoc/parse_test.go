package ruledoc

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
