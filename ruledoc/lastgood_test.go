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

// keepRules runs a Watch on good rules until they are kept, and returns the files.
func keepRules(t *testing.T) (rules, keep string) {
	t.Helper()
	rules, keep = oneFile(t, t.TempDir()), filepath.Join(t.TempDir(), "kept")
	w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: keep})
	w.expect(1)
	w.expectEvent(Applied)
	w.stop()
	return rules, keep
}

func TestKeptRulesSurviveARestart(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(rules string){
		"bad":   func(rules string) { write(t, rules, badRules) },
		"gone":  func(rules string) { must(t, os.Remove(rules)) },
		"empty": func(rules string) { write(t, rules, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, keep := keepRules(t)
			spoil(rules)
			w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: keep})
			w.expect(1)
			e := w.expectEvent(StartedFromLastGood)
			if e.Err == nil || e.Version == "" || time.Since(e.LastGoodTime) > time.Hour || e.LastGoodFile != keep {
				t.Errorf("the event lacks the reason, the version, the time or the place: %#v", e)
			}
			for _, part := range []string{e.Err.Error(), e.Version, e.LastGoodTime.Format(time.RFC3339), keep} {
				if !strings.Contains(e.String(), part) {
					t.Errorf("%q does not say %q", e, part)
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
	holdsPromise(t, func() time.Duration {
		_, keep := keepRules(t)
		path := filepath.Join(t.TempDir(), "not", "yet", "a.yaml")
		w := watch(t, WatchOptions{Paths: []string{path}, LastGoodFile: keep})
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

func TestKeptFileIsPrivateAndAlone(t *testing.T) {
	t.Parallel()
	_, keep := keepRules(t)
	entries, err := os.ReadDir(filepath.Dir(keep))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("beside the kept rules there are %v", entries)
	}
	info, err := os.Stat(keep)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s, want 0600", info.Mode().Perm())
	}
}

func TestKeptFileIsNotWrittenAgainForTheSameRules(t *testing.T) {
	t.Parallel()
	rules, keep := keepRules(t)
	before, err := os.Stat(keep)
	must(t, err)
	w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: keep})
	w.expectEvent(Applied)
	w.stop()
	after, err := os.Stat(keep)
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("the file was replaced by one that says the same")
	}
}

func TestDamagedKeptFileIsNeverUsed(t *testing.T) {
	t.Parallel()
	_, keep := keepRules(t)
	good, err := os.ReadFile(keep)
	must(t, err)
	if _, err := decodeKept(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for _, flip := range []byte{0x01, 0x20, 0x80, 0xFF} {
			damaged := bytes.Clone(good)
			damaged[i] ^= flip
			if _, err := decodeKept(damaged); err == nil {
				t.Errorf("byte %d (%q) changed to %q was not noticed", i, good[i], damaged[i])
			}
		}
		if _, err := decodeKept(good[:i]); err == nil {
			t.Errorf("cut off after %d bytes was not noticed", i)
		}
	}
	if _, err := decodeKept(append(bytes.Clone(good), '\n')); err == nil {
		t.Error("a byte too many was not noticed")
	}
	_, err = decodeKept(bytes.Replace(good, []byte(keptMagic+" 1 "), []byte(keptMagic+" 2 "), 1))
	if err == nil || !strings.Contains(err.Error(), `format "2"`) {
		t.Errorf("another format: %v", err)
	}
}

func TestDamagedKeptFileIsReplacedWhileTheFilesAreGood(t *testing.T) {
	t.Parallel()
	rules, keep := keepRules(t)
	good, err := os.ReadFile(keep)
	must(t, err)
	write(t, keep, string(good[:len(good)/2]))
	w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: keep})
	w.expect(1)
	w.expectEvent(Applied)
	if e := w.expectEvent(SaveFailed); !strings.Contains(e.String(), keep) {
		t.Errorf("%q does not name the file", e)
	}
	w.stop()
	if _, err := readKept(keep); err != nil {
		t.Errorf("the file was not replaced: %v", err)
	}
}

func TestRulesThatCannotBeKept(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]string{
		"no such directory": filepath.Join(t.TempDir(), "none", "kept"),
		"a directory":       filepath.Join(t.TempDir(), "kept"),
	} {
		if name == "a directory" {
			must(t, os.Mkdir(keep, 0o700))
		}
		rules := oneFile(t, t.TempDir())
		w := watch(t, WatchOptions{Paths: []string{rules}, LastGoodFile: keep})
		w.expect(1)
		w.expectEvent(Applied)
		e := w.expectEvent(SaveFailed)
		for e.Err != nil && strings.Contains(e.Err.Error(), "cannot read") { // a directory cannot be read either
			e = w.expectEvent(SaveFailed)
		}
		t.Logf("%s: %s", name, e)
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(keep), ".*")); len(left) > 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

func TestKeepingIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "full")
	var events []Event
	w := &Watcher{
		options: WatchOptions{LastGoodFile: filepath.Join(dir, "kept"), Report: func(e Event) { events = append(events, e) }},
		unkept:  newKept("v1", nil),
	}
	for range 3 {
		w.keepTime = time.Now().Add(-rereadEvery)
		w.keepAgain()
	}
	if len(events) != 1 || !errors.Is(events[0].Err, fs.ErrNotExist) {
		t.Errorf("three failures for one reason gave %v, want one event", events)
	}
	must(t, os.Mkdir(dir, 0o700))
	w.keepAgain()
	if w.unkept == nil {
		t.Error("tried again at once")
	}
	w.keepTime = time.Now().Add(-rereadEvery)
	w.keepAgain()
	if k, err := readKept(w.options.LastGoodFile); err != nil || k == nil || k.Version != "v1" || w.unkept != nil {
		t.Errorf("kept %v, %v; still to keep: %v", k, err, w.unkept)
	}
}

func TestNothingToStartWith(t *testing.T) {
	t.Parallel()
	rules, keep := keepRules(t)
	write(t, rules, badRules)
	apply := func(*Document) error { return nil }

	good, err := os.ReadFile(keep)
	must(t, err)
	write(t, keep, string(good[:len(good)-1]))
	_, err = Watch(t.Context(), WatchOptions{Paths: []string{rules}, LastGoodFile: keep, Apply: apply})
	var problems Errors
	if !errors.As(err, &problems) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("error %v, want what is wrong with the files and with the kept ones", err)
	}

	must(t, newKept("v1", []source{{Name: "old.yaml", Data: []byte(badRules)}}).write(keep))
	_, err = Watch(t.Context(), WatchOptions{Paths: []string{rules}, LastGoodFile: keep, Apply: apply})
	if err == nil || !strings.Contains(err.Error(), "old.yaml:4") || !strings.Contains(err.Error(), rules+":4") {
		t.Errorf("error %v, want what is wrong with the files and with the kept ones", err)
	}
}
