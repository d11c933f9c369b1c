package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Find returns the path of a program: a tool installed by "make deps", or one in PATH. If there is none, the test is skipped, or
// fails in CI.
func Find(t testing.TB, name string) string {
	t.Helper()
	root := Repository(t)
	// Debian installs servers in sbin, which only root has in PATH.
	for _, place := range []string{filepath.Join(root, ".bin", name), name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	missing(t, name)
	return ""
}

// BuildHeadgate builds the headgate program, with additional flags of "go build", and returns its path.
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

// Repository returns the root directory of the repository, at or above the current directory.
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
