package peer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// Import makes rules of the peer's config, in the directory rules beside a server's config, as users do who have the peer now.
func Import(t testing.TB, program, dir, limits string) {
	t.Helper()
	testenv.WriteFiles(t, dir, map[string]string{"limits.yaml": limits})
	command := exec.CommandContext(t.Context(), program, "rules", "import", "--from", "envoy-ratelimit", "--out", "rules", "limits.yaml")
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

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
		testenv.NoError(t, err)
		strict := strings.ReplaceAll(string(text), algorithm, algorithm+"    strict: true\n")
		testenv.NoError(t, os.WriteFile(file, []byte(strict), 0o600))
	}
}
