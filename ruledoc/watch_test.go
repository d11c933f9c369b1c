package ruledoc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// maxDelay is the longest time from a write until its rules are active.
const maxDelay = time.Second

// rulesOf returns a document with one rule. Its limit identifies the document.
func rulesOf(id string, count int64) string {
	return fmt.Sprintf("rules:\n  - id: %s\n    by: [ip]\n    limit: %d/minute\n", id, count)
}

const badRules = "rules:\n  - id: broken\n    by: [ip]\n    limit: many\n"

// watching is a Watch under test with its events.
type watching struct {
	t       *testing.T
	applied chan *Document
	events  chan Event
	watcher *Watcher
	stop    context.CancelFunc
}

func watch(t *testing.T, options WatchOptions) *watching {
	t.Helper()
	w := &watching{t: t, applied: make(chan *Document, 1000), events: make(chan Event, 1000)}
	if options.Apply == nil {
		options.Apply = func(d *Document) error {
			w.applied <- d
			return nil
		}
	}
	options.Report = func(e Event) { w.events <- e }
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if w.watcher, err = Watch(ctx, options); err != nil {
		cancel()
		t.Fatal(err)
	}
	w.stop = func() {
		cancel()
		w.watcher.Wait()
	}
	t.Cleanup(w.stop)
	return w
}

// expect waits for the next document and checks its limits, in order.
func (w *watching) expect(counts ...int64) {
	w.t.Helper()
	select {
	case d := <-w.applied:
		if got := countsOf(d); !slices.Equal(got, counts) {
			w.t.Fatalf("applied limits %v, want %v", got, counts)
		}
	case <-time.After(10 * maxDelay):
		w.t.Fatalf("limits %v were not applied; events: %v", counts, w.drain())
	}
}

// expectEvent waits for the next event, which must be of this kind.
func (w *watching) expectEvent(kind EventKind) Event {
	w.t.Helper()
	select {
	case e := <-w.events:
		if e.Kind != kind {
			w.t.Fatalf("event %q, want %q: %s", e.Kind, kind, e)
		}
		return e
	case <-time.After(10 * maxDelay):
		w.t.Fatalf("no event %q", kind)
	}
	return Event{}
}

// expectNothing checks that nothing is applied or reported during several polls.
func (w *watching) expectNothing() {
	w.t.Helper()
	select {
	case e := <-w.events:
		w.t.Fatalf("unexpected event %q: %s", e.Kind, e)
	case d := <-w.applied:
		w.t.Fatalf("unexpectedly applied %v", countsOf(d))
	case <-time.After(3 * pollInterval):
	}
}

func (w *watching) drain() (events []string) {
	for {
		select {
		case e := <-w.events:
			events = append(events, e.String())
		default:
			return events
		}
	}
}

func countsOf(d *Document) (counts []int64) {
	for _, r := range d.Source {
		counts = append(counts, r.Limit.Count)
	}
	return counts
}

// checkDelay checks that a change is active within maxDelay. Parallel tests may slow the machine down, so it makes three
// attempts.
func checkDelay(t *testing.T, attempt func() time.Duration) {
	t.Helper()
	for range 3 {
		delay := attempt()
		t.Logf("active %d ms after the write", delay.Milliseconds())
		if delay < maxDelay {
			return
		}
	}
	t.Errorf("never active within %s", maxDelay)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// configMap is a volume as the kubelet writes it: the files are symbolic links through ..data into a directory that is replaced.
type configMap struct {
	t       *testing.T
	dir     string
	updates int
}

func (c *configMap) write(files map[string]string) {
	c.t.Helper()
	c.updates++
	fresh := fmt.Sprintf("..2026_11_15_05_00_%02d.%09d", c.updates%60, c.updates)
	must(c.t, os.MkdirAll(filepath.Join(c.dir, fresh), 0o700))
	for name, text := range files {
		write(c.t, filepath.Join(c.dir, fresh, name), text)
	}
	data, stale := filepath.Join(c.dir, "..data"), ""
	if target, err := os.Readlink(data); err == nil {
		stale = filepath.Join(c.dir, target)
	}
	must(c.t, os.Symlink(fresh, data+"_tmp"), os.Rename(data+"_tmp", data))
	for name := range files {
		err := os.Symlink(filepath.Join("..data", name), filepath.Join(c.dir, name))
		if err != nil && !os.IsExist(err) {
			c.t.Fatal(err)
		}
	}
	if stale != "" {
		must(c.t, os.RemoveAll(stale))
	}
}

// changes are ways to change the rules in a directory. Set creates files that include a.yaml with a limit of 1, and returns
// the path to watch. After change, the limits are want.
var changes = []struct {
	name   string
	want   []int64
	set    func(t *testing.T, dir string) string
	change func(t *testing.T, dir string)
}{
	{
		name: "written in place", want: []int64{2},
		set:    oneFile,
		change: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a.yaml"), rulesOf("a", 2)) },
	},
	{
		name: "renamed over", want: []int64{2},
		set: oneFile,
		change: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".a.yaml.swp"), rulesOf("a", 2))
			must(t, os.Rename(filepath.Join(dir, ".a.yaml.swp"), filepath.Join(dir, "a.yaml")))
		},
	},
	{
		name: "deleted and created", want: []int64{2},
		set: oneFile,
		change: func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "a.yaml")))
			write(t, filepath.Join(dir, "a.yaml"), rulesOf("a", 2))
		},
	},
	{
		name: "file added", want: []int64{1, 2},
		set:    oneDirectory,
		change: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "b.yaml"), rulesOf("b", 2)) },
	},
	{
		name: "file removed", want: []int64{1},
		set: func(t *testing.T, dir string) string {
			write(t, filepath.Join(dir, "b.yaml"), rulesOf("b", 2))
			return oneDirectory(t, dir)
		},
		change: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "b.yaml"))) },
	},
	{
		name: "directory replaced", want: []int64{2},
		set: func(t *testing.T, dir string) string {
			must(t, os.Mkdir(filepath.Join(dir, "rules"), 0o700), os.Mkdir(filepath.Join(dir, "fresh"), 0o700))
			write(t, filepath.Join(dir, "fresh", "a.yaml"), rulesOf("a", 2))
			oneFile(t, filepath.Join(dir, "rules"))
			return filepath.Join(dir, "rules")
		},
		change: func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "rules"), filepath.Join(dir, "stale")),
				os.Rename(filepath.Join(dir, "fresh"), filepath.Join(dir, "rules")))
		},
	},
	{
		name: "parent symbolic link changed", want: []int64{2},
		set: func(t *testing.T, dir string) string {
			for i, release := range []string{"one", "two"} {
				must(t, os.MkdirAll(filepath.Join(dir, release, "rules"), 0o700))
				write(t, filepath.Join(dir, release, "rules", "a.yaml"), rulesOf("a", int64(i+1)))
			}
			must(t, os.Symlink("one", filepath.Join(dir, "current")))
			return filepath.Join(dir, "current", "rules", "a.yaml")
		},
		change: func(t *testing.T, dir string) {
			must(t, os.Symlink("two", filepath.Join(dir, "next")),
				os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")))
		},
	},
	{
		name: "target of a symbolic link written", want: []int64{2},
		set: func(t *testing.T, dir string) string {
			must(t, os.Mkdir(filepath.Join(dir, "elsewhere"), 0o700))
			oneFile(t, filepath.Join(dir, "elsewhere"))
			must(t, os.Symlink(filepath.Join(dir, "elsewhere", "a.yaml"), filepath.Join(dir, "link.yaml")))
			return filepath.Join(dir, "link.yaml")
		},
		change: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "elsewhere", "a.yaml"), rulesOf("a", 2))
		},
	},
	{
		name: "ConfigMap updated", want: []int64{2, 3},
		set: func(t *testing.T, dir string) string {
			(&configMap{t: t, dir: dir}).write(map[string]string{"a.yaml": rulesOf("a", 1)})
			return dir
		},
		change: func(t *testing.T, dir string) {
			(&configMap{t: t, dir: dir, updates: 1}).write(
				map[string]string{"a.yaml": rulesOf("a", 2), "b.yaml": rulesOf("b", 3)})
		},
	},
}

func oneFile(t *testing.T, dir string) string {
	path := filepath.Join(dir, "a.yaml")
	write(t, path, rulesOf("a", 1))
	return path
}

func oneDirectory(t *testing.T, dir string) string {
	oneFile(t, dir)
	return dir
}

func TestWatchChanges(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkDelay(t, func() time.Duration {
				dir := t.TempDir()
				w := watch(t, WatchOptions{Paths: []string{c.set(t, dir)}})
				defer w.stop()
				if first := <-w.applied; len(first.Source) == 0 {
					t.Fatal("started without rules")
				}
				w.expectEvent(Applied)
				c.change(t, dir)
				written := time.Now()
				w.expect(c.want...)
				delay := time.Since(written)
				w.expectEvent(Applied)
				return delay
			})
		})
	}
}

func TestWatchAppliesBeforeItReturns(t *testing.T) {
	t.Parallel()
	var applied bool
	ctx, cancel := context.WithCancel(t.Context())
	w, err := Watch(ctx, WatchOptions{
		Paths:  []string{oneFile(t, t.TempDir())},
		Apply:  func(*Document) error { applied = true; return nil },
		Report: func(Event) {},
	})
	must(t, err)
	if !applied {
		t.Error("Watch returned before Apply was called")
	}
	cancel()
	w.Wait()
}

func TestWatchIgnoresUnchangedContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := oneFile(t, dir)
	w := watch(t, WatchOptions{Paths: []string{path}})
	w.expect(1)
	w.expectEvent(Applied)
	write(t, path, rulesOf("a", 1))
	must(t, os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)))
	w.expectNothing()
}

func TestWatchKeepsActiveRulesWhileFilesAreInvalid(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	dir := t.TempDir()
	path := oneFile(t, dir)
	w := watch(t, WatchOptions{Paths: []string{path}})
	w.expect(1)
	version := w.expectEvent(Applied).Version
	if version == "" {
		t.Error("the event does not name the version")
	}

	write(t, path, badRules)
	rejected := w.expectEvent(Rejected)
	var problems Errors
	if !errors.As(rejected.Err, &problems) || problems[0].File != path || problems[0].Line != 4 {
		t.Errorf("the error is %v, want a position in the file", rejected.Err)
	}
	if rejected.Version != version || !strings.Contains(rejected.String(), version) {
		t.Errorf("rejected with version %q, but %q is active: %s", rejected.Version, version, rejected)
	}
	w.expectNothing()

	must(t, os.Remove(path))
	w.expectEvent(Rejected)
	w.expectNothing()

	write(t, path, rulesOf("a", 1))
	if e := w.expectEvent(Recovered); e.Version != version {
		t.Errorf("recovered with version %q, want %q", e.Version, version)
	}
	write(t, path, badRules)
	w.expectEvent(Rejected)
	write(t, path, rulesOf("a", 2))
	w.expect(2)
	version = w.expectEvent(Applied).Version
	write(t, path, badRules)
	w.expectEvent(Rejected)
	write(t, path, rulesOf("a", 2))
	if e := w.expectEvent(Recovered); e.Version != version {
		t.Errorf("recovered with version %q, want %q", e.Version, version)
	}
	w.expectNothing()
}

func TestWatchRejectsRulesIfApplyFails(t *testing.T) {
	t.Parallel()
	path := oneFile(t, t.TempDir())
	clash := errors.New("clashes with other rules")
	w := watch(t, WatchOptions{Paths: []string{path}, Apply: func(d *Document) error {
		if countsOf(d)[0] == 2 {
			return clash
		}
		return nil
	}})
	version := w.expectEvent(Applied).Version
	write(t, path, rulesOf("a", 2))
	if e := w.expectEvent(Rejected); !errors.Is(e.Err, clash) || e.Version != version {
		t.Errorf("event %s, want the error of Apply and version %s", e, version)
	}
	write(t, path, rulesOf("a", 3))
	if e := w.expectEvent(Applied); e.Version == version {
		t.Error("the version did not change")
	}
}

func TestWatchHalfWrittenFile(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	path := oneFile(t, t.TempDir())
	w := watch(t, WatchOptions{Paths: []string{path}})
	w.expect(1)
	w.expectEvent(Applied)

	// Every intermediate state but the last is invalid: it has no limit or an incomplete one.
	text := "rules:\n  - id: a\n    by: [ip]\n    algorithm: sliding_window\n    limit: {rate: 2/minute}\n"
	f, err := os.Create(path)
	must(t, err)
	for chunk := range slices.Chunk([]byte(text), 8) {
		_, err := f.Write(chunk)
		must(t, err, f.Sync())
		time.Sleep(2 * settleTime) // slower than the watcher waits
	}
	must(t, f.Close())
	w.expect(2)
	for {
		e := <-w.events
		if e.Kind == Applied {
			break
		}
		if e.Kind != Rejected {
			t.Fatalf("event %q: %s", e.Kind, e)
		}
	}
}

func TestWatchRandomWrites(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	path := oneFile(t, dir)
	var lastApplied, applies atomic.Int64
	lastGood := filepath.Join(t.TempDir(), "last-good")
	w := watch(t, WatchOptions{Paths: []string{dir}, LastGoodFile: lastGood, Apply: func(d *Document) error {
		counts := countsOf(d)
		if d.Rules == nil || len(counts) != 1 || counts[0] < 1 {
			t.Errorf("applied an invalid document: %v", counts)
			return nil
		}
		lastApplied.Store(counts[0])
		applies.Add(1)
		return nil
	}})
	for n := range 200 {
		text := rulesOf("a", int64(n+2))
		if random.IntN(2) == 0 {
			text = text[:random.IntN(len(text)-len("minute\n"))] // truncated before the time unit
		}
		if n == 199 {
			text = rulesOf("a", 1_000_000)
		}
		if random.IntN(2) == 0 {
			write(t, path, text)
		} else {
			write(t, path+".tmp", text)
			must(t, os.Rename(path+".tmp", path))
		}
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond) // at various stages of a poll
	}
	written := time.Now()
	for lastApplied.Load() != 1_000_000 {
		select {
		case <-w.events:
		case <-time.After(10 * maxDelay):
			t.Fatalf("the last write was not applied; limit %d is active", lastApplied.Load())
		}
	}
	t.Logf("%d of 200 writes were applied, the last one %d ms after it was written",
		applies.Load(), time.Since(written).Milliseconds())
}

func TestWatchOptionsAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, none, lastGood := oneFile(t, dir), filepath.Join(dir, "none.yaml"), filepath.Join(t.TempDir(), "last-good")
	apply := func(*Document) error { return nil }
	for name, options := range map[string]WatchOptions{
		"no paths":                       {Apply: apply},
		"no Apply":                       {Paths: []string{path}},
		"last good file among the rules": {Paths: []string{dir}, Apply: apply, LastGoodFile: filepath.Join(dir, "last-good.yaml")},
		"last good file is a rule file":  {Paths: []string{path}, Apply: apply, LastGoodFile: path},
		"invalid files, nothing saved":   {Paths: []string{none}, Apply: apply, LastGoodFile: lastGood},
		"invalid files, no LastGoodFile": {Paths: []string{none}, Apply: apply},
	} {
		_, err := Watch(t.Context(), options)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		t.Logf("%s: %v", name, err)
	}
}

func TestEventKindsHaveNames(t *testing.T) {
	t.Parallel()
	for k := Applied; k <= SaveFailed; k++ {
		e := Event{Kind: k, Version: "v1", Err: errors.New("reason"), LastGoodFile: "last-good", LastGoodTime: time.Unix(0, 0)}
		if text := e.String(); text == k.String() || !strings.Contains(text, "v1") {
			t.Errorf("%s: %q", k, text)
		}
	}
	if got := (SaveFailed + 1).String(); got != "event(5)" {
		t.Errorf("the kind out of range is %q", got)
	}
}
