package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Find is where a program is: among the tools that "make deps" has brought, or
// in PATH. Without it the test ends.
func Find(t testing.TB, name string) string {
	t.Helper()
	root := Repository(t)
	// Debian's servers are in sbin, which only root has in PATH.
	for _, place := range []string{filepath.Join(root, ".bin", name), name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	missing(t, name)
	return ""
}

// BuildHeadgate compiles the program that users run, with flags of "go build" if there are any.
func BuildHeadgate(t testing.TB, flags ...string) (path string) {
	t.Helper()
	Long(t)
	root := Repository(t)
	path = filepath.Join(t.TempDir(), "headgate")
	build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"build", "-o", path}, flags, []string{"./cmd/headgate"})...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Repository is the directory that has the main module, at or above this one.
func Repository(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "headgate")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("testenv: not in a clone of the repository")
		}
		dir = filepath.Dir(dir)
	}
}
