package ruledoc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// saveRules runs a Watch on valid rules until they are saved, and returns the rule file and the last good file.
func saveRules(t *testing.T) (rules, file string) {
	t.Helper()
	rules, file = oneFile(t, t.TempDir()), filepath.Join(t.TempDir(), "last-good")
	w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: file})
	w.expect(1)
	w.expectEvent(Applied)
	w.stop()
	return rules, file
}

func TestLastGoodRulesSurviveRestart(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(rules string){
		"invalid": func(rules string) { write(t, rules, badRules) },
		"missing": func(rules string) { must(t, os.Remove(rules)) },
		"empty":   func(rules string) { write(t, rules, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, file := saveRules(t)
			spoil(rules)
			w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: file})
			w.expect(1)
			e := w.expectEvent(StartedFromLastGood)
			if e.Err == nil || e.Version == "" || time.Since(e.LastGoodTime) > time.Hour || e.LastGoodFile != file {
				t.Errorf("the event lacks the error, the version, the time or the file: %#v", e)
			}
			for _, part := range []string{e.Err.Error(), e.Version, e.LastGoodTime.Format(time.RFC3339), file} {
				if !strings.Contains(e.String(), part) {
					t.Errorf("%q does not contain %q", e, part)
				}
			}
			w.expectNothing()
			write(t, rules, rulesOf("a", 1))
			w.expectEvent(Recovered)
			write(t, rules, rulesOf("a", 2))
			w.expect(2)
		})
	}
}

func TestPathThatDoesNotExistYet(t *testing.T) {
	t.Parallel()
	checkDelay(t, func() time.Duration {
		_, file := saveRules(t)
		path := filepath.Join(t.TempDir(), "not", "yet", "a.yaml")
		w := watch(t, WatchOptions{Paths: []string{path}, LastGoodFile: file})
		defer w.stop()
		w.expect(1)
		w.expectEvent(StartedFromLastGood)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		write(t, path, rulesOf("a", 2))
		written := time.Now()
		w.expect(2)
		return time.Since(written)
	})
}

func TestLastGoodFileIsPrivate(t *testing.T) {
	t.Parallel()
	_, file := saveRules(t)
	entries, err := os.ReadDir(filepath.Dir(file))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("the directory has other files: %v", entries)
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s, want 0600", info.Mode().Perm())
	}
}

func TestLastGoodFileIsNotRewrittenForSameRules(t *testing.T) {
	t.Parallel()
	rules, file := saveRules(t)
	before, err := os.Stat(file)
	must(t, err)
	w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: file})
	w.expectEvent(Applied)
	w.stop()
	after, err := os.Stat(file)
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("the file was replaced by one with the same content")
	}
}

func TestDamagedLastGoodFileIsNotUsed(t *testing.T) {
	t.Parallel()
	_, file := saveRules(t)
	good, err := os.ReadFile(file)
	must(t, err)
	if _, err := decodeLastGood(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for _, flip := range []byte{0x01, 0x20, 0x80, 0xFF} {
			damaged := bytes.Clone(good)
			damaged[i] ^= flip
			if _, err := decodeLastGood(damaged); err == nil {
				t.Errorf("byte %d (%q) changed to %q was not detected", i, good[i], damaged[i])
			}
		}
		if _, err := decodeLastGood(good[:i]); err == nil {
			t.Errorf("truncation to %d bytes was not detected", i)
		}
	}
	if _, err := decodeLastGood(append(bytes.Clone(good), '\n')); err == nil {
		t.Error("an extra byte was not detected")
	}
	_, err = decodeLastGood(bytes.Replace(good, []byte(lastGoodMagic+" 1 "), []byte(lastGoodMagic+" 2 "), 1))
	if err == nil || !strings.Contains(err.Error(), `format "2"`) {
		t.Errorf("another format: %v", err)
	}
}

func TestDamagedLastGoodFileIsReplaced(t *testing.T) {
	t.Parallel()
	rules, file := saveRules(t)
	good, err := os.ReadFile(file)
	must(t, err)
	write(t, file, string(good[:len(good)/2]))
	w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: file})
	w.expect(1)
	w.expectEvent(Applied)
	if e := w.expectEvent(SaveFailed); !strings.Contains(e.String(), file) {
		t.Errorf("%q does not name the file", e)
	}
	w.stop()
	if _, err := readLastGood(file); err != nil {
		t.Errorf("the file was not replaced: %v", err)
	}
}

func TestSaveFailure(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"no directory": filepath.Join(t.TempDir(), "none", "last-good"),
		"a directory":  filepath.Join(t.TempDir(), "last-good"),
	} {
		if name == "a directory" {
			must(t, os.Mkdir(file, 0o700))
		}
		rules := oneFile(t, t.TempDir())
		w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: file})
		w.expect(1)
		w.expectEvent(Applied)
		e := w.expectEvent(SaveFailed)
		for e.Err != nil && strings.Contains(e.Err.Error(), "cannot read") { // a directory cannot be read either
			e = w.expectEvent(SaveFailed)
		}
		t.Logf("%s: %s", name, e)
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
			t.Errorf("%s: temporary file %v was not removed", name, left)
		}
	}
}

func TestSaveIsRetried(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "full")
	var events []Event
	w := &Watcher{
		options: WatchOptions{LastGoodFile: filepath.Join(dir, "last-good"), Report: func(e Event) { events = append(events, e) }},
		unsaved: newLastGood("v1", nil),
	}
	for range 3 {
		w.lastSave = time.Now().Add(-rereadInterval)
		w.retrySave()
	}
	if len(events) != 1 || !errors.Is(events[0].Err, fs.ErrNotExist) {
		t.Errorf("three failures with the same error reported %v, want one event", events)
	}
	must(t, os.Mkdir(dir, 0o700))
	w.retrySave()
	if w.unsaved == nil {
		t.Error("retried too early")
	}
	w.lastSave = time.Now().Add(-rereadInterval)
	w.retrySave()
	if saved, err := readLastGood(w.options.LastGoodFile); err != nil || saved == nil || saved.Version != "v1" || w.unsaved != nil {
		t.Errorf("saved %v, %v; unsaved: %v", saved, err, w.unsaved)
	}
}

func TestNoValidRules(t *testing.T) {
	t.Parallel()
	rules, file := saveRules(t)
	write(t, rules, badRules)
	apply := func(*Document) error { return nil }

	good, err := os.ReadFile(file)
	must(t, err)
	write(t, file, string(good[:len(good)-1]))
	_, err = Watch(t.Context(), WatchOptions{Paths: []string{rules}, LastGoodFile: file, Apply: apply})
	var problems Errors
	if !errors.As(err, &problems) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("error %v, want the errors of the files and of the last good rules", err)
	}

	must(t, newLastGood("v1", []source{{Name: "old.yaml", Data: []byte(badRules)}}).write(file))
	_, err = Watch(t.Context(), WatchOptions{Paths: []string{rules}, LastGoodFile: file, Apply: apply})
	if err == nil || !strings.Contains(err.Error(), "old.yaml:4") || !strings.Contains(err.Error(), rules+":4") {
		t.Errorf("error %v, want the errors of the files and of the last good rules", err)
	}
}
