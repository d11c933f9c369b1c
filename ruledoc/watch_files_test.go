package ruledoc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// settled returns a Watcher that does not run and has read its files long enough ago to trust their metadata.
func settled(tb testing.TB, path string) *Watcher {
	tb.Helper()
	w := &Watcher{options: WatchOptions{Paths: []string{path}}}
	if _, err := w.read(); err != nil {
		tb.Fatal(err)
	}
	w.stamped = time.Now().Add(-rereadAfterChange)
	return w
}

func TestPollDetectsChangesByMetadata(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := settled(t, c.set(t, dir))
			if w.mayHaveChanged() {
				t.Error("nothing has changed")
			}
			c.change(t, dir)
			if !w.mayHaveChanged() {
				t.Error("the change was not detected")
			}
		})
	}
}

// TestPollRereadsFilesWithUnchangedMetadata writes a file of the same size with the same modification time.
func TestPollRereadsFilesWithUnchangedMetadata(t *testing.T) {
	t.Parallel()
	path := oneFile(t, t.TempDir())
	w := settled(t, path)
	before, err := os.Stat(path)
	must(t, err)
	write(t, path, rulesOf("a", 2))
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	if w.mayHaveChanged() {
		t.Fatal("the metadata differs: the test is invalid")
	}
	w.stamped = time.Now()
	if !w.mayHaveChanged() {
		t.Error("a file with new metadata was trusted immediately")
	}
	w.stamped, w.readAt = time.Now().Add(-rereadAfterChange), time.Now().Add(-rereadInterval)
	if !w.mayHaveChanged() {
		t.Error("the file would never be read again")
	}
}

// TestFilesAreGivenTimeToSettle checks that the watcher waits, for a bounded time, for a file that is being written and for
// one that was deleted and may be created again.
func TestFilesAreGivenTimeToSettle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := oneFile(t, dir)
	write(t, filepath.Join(dir, "b.yaml"), rulesOf("b", 2))
	w := settled(t, dir)
	before := w.scan()
	if w.unsettled(before, before, settleTime) {
		t.Error("waits for unchanged files")
	}
	write(t, path, rulesOf("a", 1_000))
	written := w.scan()
	if !w.unsettled(before, written, settleTime) || w.unsettled(written, written, settleTime) {
		t.Error("reads a file before it is unchanged, or does not read it afterwards")
	}
	must(t, os.Remove(path))
	gone := w.scan()
	if !w.unsettled(gone, gone, settleTime) {
		t.Error("does not wait for a missing file")
	}
	if w.unsettled(before, gone, maxSettleTime) {
		t.Error("waits longer than maxSettleTime")
	}
}

func BenchmarkPoll(b *testing.B) {
	for _, files := range []int{1, 100} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			dir := b.TempDir()
			for i := range files {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(rulesOf("a", 1)), 0o600); err != nil {
					b.Fatal(err)
				}
			}
			w := settled(b, dir)
			w.readAt = time.Now().Add(time.Hour)
			w.stamped = time.Now().Add(-time.Hour)
			for b.Loop() {
				if w.mayHaveChanged() {
					b.Fatal("nothing has changed")
				}
			}
		})
	}
}
