package testenv

import (
	"os"
	"os/exec"
	"testing"
)

// Browse opens a page in a headless Chromium that ends with the test. The page reports what it sees to the server it came from.
func Browse(t testing.TB, url string) *Program {
	t.Helper()
	Long(t)
	binary := Find(t, "chromium")
	profile, err := os.MkdirTemp("", "browser") //nolint:usetesting // The browser may still write into it when the test ends.
	NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(profile) }) //nolint:errcheck // what is left is removed with the machine's temporary files
	return Spawn(t, exec.Command(binary, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--user-data-dir="+profile, "--remote-debugging-port=0", url))
}
