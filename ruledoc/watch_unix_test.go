//go:build unix

package ruledoc

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReadNeverMixesOldAndNew replaces two files together while the first of them is being read.
func TestReadNeverMixesOldAndNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volume := &configMap{t: t, dir: dir}
	volume.write(map[string]string{"a.yaml": "old", "b.yaml": "old"})

	// The reader blocks on the first file, a pipe, until the test writes to it.
	first, err := filepath.EvalSymlinks(filepath.Join(dir, "a.yaml"))
	must(t, err, os.Remove(first), syscall.Mkfifo(first, 0o600))
	var sources []source
	done := make(chan error)
	go func() {
		var err error
		w := &Watcher{options: WatchOptions{Paths: []string{dir}}}
		sources, err = w.read()
		done <- err
	}()
	pipe, err := os.OpenFile(first, os.O_WRONLY, 0)
	must(t, err)
	volume.write(map[string]string{"a.yaml": "new", "b.yaml": "new"})
	_, err = pipe.WriteString("old")
	must(t, err, pipe.Close(), <-done)
	if len(sources) != 2 || string(sources[0].Data) != "new" || string(sources[1].Data) != "new" {
		t.Errorf("read %q and %q", sources[0].Data, sources[1].Data)
	}
}
