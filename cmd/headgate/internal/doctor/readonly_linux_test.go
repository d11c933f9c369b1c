package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testenv"
)

// TestReadOnlyMount runs itself where a directory with the modes of a ConfigMap volume is mounted read-only.
func TestReadOnlyMount(t *testing.T) {
	t.Parallel()
	const variable = "HEADGATE_TEST_READ_ONLY"
	if dir := os.Getenv(variable); dir != "" {
		conf := config.Default()
		conf.Rules, conf.AdminTokensFile = []string{dir}, filepath.Join(dir, "tokens")
		expect(t, CheckFiles(conf, "", time.Now()), "permissions", OK, "")
		return
	}
	dir := t.TempDir()
	testenv.WriteFiles(t, dir, map[string]string{"rules.yaml": "", "tokens": ""})
	for path, mode := range map[string]os.FileMode{"rules.yaml": 0o666, "tokens": 0o666, ".": 0o777 | os.ModeSetgid} {
		testenv.NoError(t, os.Chmod(filepath.Join(dir, path), mode))
	}
	conf := config.Default()
	conf.Rules = []string{dir}
	expect(t, CheckFiles(conf, "", time.Now()), "rules", Problem, "changed by every user")
	mount := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "--mount", "sh", "-c", `mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"`, "sh", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("this host does not allow mounts: %s", out)
	}
	again := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "--mount", "sh", "-c", //nolint:gosec // this test
		`mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -test.run '^TestReadOnlyMount$'`, "sh", dir, os.Args[0])
	again.Env = append(os.Environ(), variable+"="+dir)
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%s: %v", out, err)
	}
}
