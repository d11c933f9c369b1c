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

// promised is how long after a write it must be in use.
const promised = time.Second

// rulesOf is a document with one rule, whose limit tells documents apart.
func rulesOf(id string, count int64) string {
	return fmt.Sprintf("rules:\n  - id: %s\n    by: [ip]\n    limit: %d/minute\n", id, count)
}

const badRules = "rules:\n  - id: broken\n    by: [ip]\n    limit: many\n"

// watching is a Watch under test and what it said.
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
	case <-time.After(10 * promised):
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
	case <-time.After(10 * promised):
		w.t.Fatalf("no event %q", kind)
	}
	return Event{}
}

// expectNothing makes sure that several polls pass in silence.
func (w *watching) expectNothing() {
	w.t.Helper()
	select {
	case e := <-w.events:
		w.t.Fatalf("event %q out of nothing: %s", e.Kind, e)
	case d := <-w.applied:
		w.t.Fatalf("applied %v out of nothing", countsOf(d))
	case <-time.After(3 * pollEvery):
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

// holdsPromise makes sure that a change is in use in time. Tests beside this one may hold up the machine, so it has three
// attempts.
func holdsPromise(t *testing.T, attempt func() time.Duration) {
	t.Helper()
	for range 3 {
		took := attempt()
		t.Logf("in use %d ms after the write", took.Milliseconds())
		if took < promised {
			return
		}
	}
	t.Errorf("not once in use within the %s that are promised", promised)
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

// configMap is a volume as the kubelet writes it: the files are links through ..data into a directory that is replaced.
type configMap struct {
	t     *testing.T
	dir   string
	turns int
}

func (c *configMap) write(files map[string]string) {
	c.t.Helper()
	c.turns++
	fresh := fmt.Sprintf("..2026_11_15_05_00_%02d.%09d", c.turns%60, c.turns)
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

// changes are ways to change what a directory says, from a.yaml with a limit of 1. Each returns the path to watch and
// what makes the change, after which the limits are want.
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
		name: "link above it pointed elsewhere", want: []int64{2},
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
		name: "target of a link written", want: []int64{2},
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
			(&configMap{t: t, dir: dir, turns: 1}).write(
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
			holdsPromise(t, func() time.Duration {
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
				took := time.Since(written)
				w.expectEvent(Applied)
				return took
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

func TestWatchSaysNothingOfTheSameContent(t *testing.T) {
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

func TestWatchKeepsWhatRunsWhileFilesAreBad(t *testing.T) {
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
	denied := w.expectEvent(Rejected)
	var problems Errors
	if !errors.As(denied.Err, &problems) || problems[0].File != path || problems[0].Line != 4 {
		t.Errorf("the reason is %v, want a place in the file", denied.Err)
	}
	if denied.Version != version || !strings.Contains(denied.String(), version) {
		t.Errorf("denied with version %q, but %q runs: %s", denied.Version, version, denied)
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

func TestWatchDeniesWhatApplyDenies(t *testing.T) {
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

	// Every state in between but the last is bad: no limit, or not yet the digits of one.
	text := "rules:\n  - id: a\n    by: [ip]\n    algorithm: sliding_window\n    limit: {rate: 2/minute}\n"
	f, err := os.Create(path)
	must(t, err)
	for chunk := range slices.Chunk([]byte(text), 8) {
		_, err := f.Write(chunk)
		must(t, err, f.Sync())
		time.Sleep(2 * quiet) // a writer that is slower than anybody waits for it
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
	keep := filepath.Join(t.TempDir(), "kept")
	w := watch(t, WatchOptions{Paths: []string{dir}, LastGoodFile: keep, Apply: func(d *Document) error {
		counts := countsOf(d)
		if d.Rules == nil || len(counts) != 1 || counts[0] < 1 {
			t.Errorf("applied a bad document: %v", counts)
			return nil
		}
		lastApplied.Store(counts[0])
		applies.Add(1)
		return nil
	}})
	for n := range 200 {
		text := rulesOf("a", int64(n+2))
		if random.IntN(2) == 0 {
			text = text[:random.IntN(len(text)-len("minute\n"))] // cut off before the unit of time
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
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond) // spread over the moments of the reader
	}
	written := time.Now()
	for lastApplied.Load() != 1_000_000 {
		select {
		case <-w.events:
		case <-time.After(10 * promised):
			t.Fatalf("the last write was not applied; limit %d runs", lastApplied.Load())
		}
	}
	t.Logf("%d of 200 writes were applied, the last one %d ms after it was written",
		applies.Load(), time.Since(written).Milliseconds())
}

func TestWatchOptionsAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, none, keep := oneFile(t, dir), filepath.Join(dir, "none.yaml"), filepath.Join(t.TempDir(), "kept")
	apply := func(*Document) error { return nil }
	for name, options := range map[string]WatchOptions{
		"no paths":                          {Apply: apply},
		"no Apply":                          {Paths: []string{path}},
		"kept among the rules":              {Paths: []string{dir}, Apply: apply, LastGoodFile: filepath.Join(dir, "kept.yaml")},
		"kept over the rules":               {Paths: []string{path}, Apply: apply, LastGoodFile: path},
		"bad files and none kept":           {Paths: []string{none}, Apply: apply, LastGoodFile: keep},
		"bad files and no LastGoodFile set": {Paths: []string{none}, Apply: apply},
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
		e := Event{Kind: k, Version: "v1", Err: errors.New("reason"), LastGoodFile: "kept", LastGoodTime: time.Unix(0, 0)}
		if text := e.String(); text == k.String() || !strings.Contains(text, "v1") {
			t.Errorf("%s: %q", k, text)
		}
	}
	if got := (SaveFailed + 1).String(); got != "event(5)" {
		t.Errorf("kind out of range is %q", got)
	}
}
