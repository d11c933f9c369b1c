package ruledoc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// settled is a Watcher that does not run and has read its files long enough ago to trust their stamps.
func settled(tb testing.TB, path string) *Watcher {
	tb.Helper()
	w := &Watcher{options: WatchOptions{Paths: []string{path}}}
	if _, err := w.read(); err != nil {
		tb.Fatal(err)
	}
	w.stamped = time.Now().Add(-mistrust)
	return w
}

func TestPollSeesChangesWithoutReading(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := settled(t, c.set(t, dir))
			if w.mayDiffer() {
				t.Error("nothing has changed")
			}
			c.change(t, dir)
			if !w.mayDiffer() {
				t.Error("the change was not seen")
			}
		})
	}
}

// A write that leaves no trace but the content: as large, with the time of the one before.
func TestPollReadsWhatStampsDoNotTell(t *testing.T) {
	t.Parallel()
	path := oneFile(t, t.TempDir())
	w := settled(t, path)
	before, err := os.Stat(path)
	must(t, err)
	write(t, path, rulesOf("a", 2))
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	if w.mayDiffer() {
		t.Fatal("the stamps differ: this test is void")
	}
	w.stamped = time.Now()
	if !w.mayDiffer() {
		t.Error("a file with a new stamp was trusted at once")
	}
	w.stamped, w.readAt = time.Now().Add(-mistrust), time.Now().Add(-rereadEvery)
	if !w.mayDiffer() {
		t.Error("the file would never be read again")
	}
}

// A file that is being written is given time, and so is one that was deleted, perhaps to be created again; but not for
// ever.
func TestFilesAreGivenTimeToSettle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := oneFile(t, dir)
	write(t, filepath.Join(dir, "b.yaml"), rulesOf("b", 2))
	w := settled(t, dir)
	before := w.scan()
	if w.unsettled(before, before, quiet) {
		t.Error("files that rest are waited for")
	}
	write(t, path, rulesOf("a", 1_000))
	written := w.scan()
	if !w.unsettled(before, written, quiet) || w.unsettled(written, written, quiet) {
		t.Error("a file is read before it rests, or not when it does")
	}
	must(t, os.Remove(path))
	gone := w.scan()
	if !w.unsettled(gone, gone, quiet) {
		t.Error("a file that is gone is not waited for")
	}
	if w.unsettled(before, gone, longestWait) {
		t.Error("the waiting has no end")
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
				if w.mayDiffer() {
					b.Fatal("nothing has changed")
				}
			}
		})
	}
}
