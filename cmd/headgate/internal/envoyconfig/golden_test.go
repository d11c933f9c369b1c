package envoyconfig

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/yamldoc"
	"github.com/headgate/headgate/ruledoc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden imports the config above the first dashes, and compares the rules and the settings that were not converted with the text
// below. The rules must be valid and pass the generated tests. The examples are those of envoyproxy/ratelimit; testdata/newer needs its
// releases since March 2026.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 16 {
		t.Fatal(files, err)
	}
	newer, err := filepath.Glob("testdata/newer/*.txt")
	if err != nil || len(newer) < 4 {
		t.Fatal(newer, err)
	}
	files = append(files, newer...)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config, want, _ := strings.Cut(string(data), "-----\n")
			imported, err := Import(yamldoc.Source{Name: "config.yaml", Data: []byte(config)})
			if err != nil {
				t.Fatal(err)
			}
			got := Rules(imported.Files...) + "-----\n" + imported.NotConverted.Error()
			got = strings.TrimRight(got, "\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(config+"-----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			runTests(t, imported)
		})
	}
}

// runTests runs the generated tests of each file.
func runTests(t *testing.T, imported *Imported) {
	t.Helper()
	dir := t.TempDir()
	for i := range imported.Files {
		if imported.Files[i].Tests("r.yaml") == "" {
			continue
		}
		rules, tests := filepath.Join(dir, "r.yaml"), filepath.Join(dir, "r_test.yaml")
		for file, text := range map[string]string{rules: Rules(imported.Files[i]), tests: imported.Files[i].Tests(rules)} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ruledoc.Test(t, tests)
	}
}
