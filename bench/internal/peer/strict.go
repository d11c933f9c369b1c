package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// MakeStrict has Redis decide each request by the rules that were imported into a directory. Otherwise refusals are believed for a
// moment, and what is much asked for is decided ahead of it.
func MakeStrict(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	const algorithm = "    algorithm: fixed_window\n"
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		strict := strings.ReplaceAll(string(text), algorithm, algorithm+"    strict: true\n")
		if err := os.WriteFile(file, []byte(strict), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
