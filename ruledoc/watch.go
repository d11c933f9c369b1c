package ruledoc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// pollInterval is the interval at which the files are checked. A poll and the time to settle leave most of the promised second
	// for loading. Notifications (inotify) would be faster by one poll, but not every file system supports them.
	pollInterval = 250 * time.Millisecond
	// settleTime is how long files must be unchanged before they are read, so that a writer can finish.
	settleTime = 100 * time.Millisecond
	// maxSettleTime bounds the wait for a writer that does not finish, or for a file that disappeared: editors and copy
	// programs delete a file and create it again.
	maxSettleTime = 300 * time.Millisecond
	// rereadAfterChange is how long files are read at every poll after their metadata changed. A second write within the
	// coarsest resolution of file times, two seconds, may leave the metadata unchanged.
	rereadAfterChange = 2500 * time.Millisecond
	// rereadInterval is the interval at which files are read even if their metadata is unchanged, and at which a failed save of
	// the last good rules is retried.
	rereadInterval = 10 * time.Second
)

// WatchOptions configure Watch.
type WatchOptions struct {
	// Paths are files and directories, as for Load. Files added to a directory or removed from it are noticed.
	Paths []string
	// LastGoodFile is the file in which the last good rules are saved. Watch starts with them if the rule files are invalid or
	// missing. Its directory must exist. If it is empty, the last good rules do not survive a restart.
	LastGoodFile string
	// Apply activates rules: the first ones before Watch returns, others whenever the files change. If it returns an error, the
	// rules are rejected as if the files were invalid. It is never called concurrently.
	Apply func(*Document) error
	// Report receives the events; nil logs them with package slog. It is never called concurrently with itself or Apply.
	Report func(Event)
}

// Watcher watches rule files and applies their changes. Watch creates it.
type Watcher struct {
	options  WatchOptions
	stopped  chan struct{}
	stamps   []stamp   // metadata of the files when they were last read
	stamped  time.Time // when this metadata was first seen
	readAt   time.Time
	readErr  error
	lastRead contentSum // of the files as last read
	active   contentSum // of the active rules; if it differs from lastRead, the files are invalid
	version  string
	unsaved  *lastGood // rules that could not be saved yet
	saveErr  string
	lastSave time.Time
}

// Watch applies the rules in the files, and applies them again whenever the files change, until ctx is done.
//
// A change is active within a second of the write, whether a file was written in place, renamed over, deleted and
// created, added to or removed from a directory, or is behind a symbolic link that was changed, as Kubernetes does with a
// ConfigMap. Files whose content is already active are not applied again. Invalid or missing files are reported once, and
// the active rules stay active.
//
// If the files are invalid or missing at the start, Watch applies the rules of options.LastGoodFile. It returns an error
// only if that fails too.
func Watch(ctx context.Context, options WatchOptions) (*Watcher, error) {
	if len(options.Paths) == 0 || options.Apply == nil {
		return nil, errors.New("watch rules: WatchOptions.Paths and WatchOptions.Apply are required: set both")
	}
	if err := checkLastGoodFile(options.LastGoodFile, options.Paths); err != nil {
		return nil, err
	}
	if options.Report == nil {
		options.Report = logEvent
	}
	w := &Watcher{options: options, stopped: make(chan struct{})}
	if err := w.start(); err != nil {
		return nil, err
	}
	go w.run(ctx)
	return w, nil
}

// Wait blocks until the watcher has stopped, which it does when its context is done. After Wait, neither Apply nor Report is
// called.
func (w *Watcher) Wait() { <-w.stopped }

// start applies the first rules: those of the files or, if that fails, the last good ones.
func (w *Watcher) start() error {
	saved, readErr := readLastGood(w.options.LastGoodFile)
	sources, err := w.read()
	w.lastRead = sumOf(sources, err)
	if err == nil {
		err = w.accept(sources)
	}
	if err != nil {
		return w.startFromLastGood(saved, readErr, err)
	}
	w.active = w.lastRead
	w.report(Event{Kind: Applied})
	if readErr != nil {
		w.report(Event{Kind: SaveFailed, Err: readErr})
	}
	if saved == nil || sumOf(saved.Sources, nil) != w.active {
		w.unsaved = newLastGood(w.version, sources)
		w.save()
	}
	return nil
}

// startFromLastGood applies the saved rules, because the files were rejected for this reason. ReadErr is the error of reading
// the saved rules.
func (w *Watcher) startFromLastGood(saved *lastGood, readErr, reason error) error {
	switch {
	case w.options.LastGoodFile == "":
		return fmt.Errorf("no valid rules: correct the files, or set WatchOptions.LastGoodFile to start with the last good rules: %w", reason)
	case readErr != nil:
		return fmt.Errorf("no valid rules: correct the files: %w\nand the last good rules cannot be used: %w", reason, readErr)
	case saved == nil:
		return fmt.Errorf("no valid rules: correct the files; no last good rules are saved in %s yet: %w", w.options.LastGoodFile, reason)
	}
	if err := w.accept(saved.Sources); err != nil {
		return fmt.Errorf("no valid rules: correct the files: %w\nand the last good rules, saved in %s on %s, are invalid too: %w",
			reason, w.options.LastGoodFile, saved.At.Format(time.RFC3339), err)
	}
	w.active = sumOf(saved.Sources, nil)
	w.report(Event{Kind: StartedFromLastGood, Err: reason, LastGoodFile: w.options.LastGoodFile, LastGoodTime: saved.At})
	return nil
}

// run polls the files until ctx is done.
func (w *Watcher) run(ctx context.Context) {
	defer close(w.stopped)
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			if w.mayHaveChanged() {
				w.settle(ctx)
				w.reload(ctx)
			}
			w.retrySave()
		}
	}
}

// settle waits until the files stop changing, maxSettleTime has passed, or ctx is done.
func (w *Watcher) settle(ctx context.Context) {
	began, last := time.Now(), w.scan()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(settleTime):
		}
		now := w.scan()
		if !w.unsettled(last, now, time.Since(began)) {
			return
		}
		last = now
	}
}

// unsettled reports whether to wait longer before the files are read.
func (w *Watcher) unsettled(last, now []stamp, waited time.Duration) bool {
	return waited < maxSettleTime && (!sameStamps(last, now) || anyMissing(now, w.stamps))
}

// reload reads the files and applies them if their content changed.
func (w *Watcher) reload(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	sources, err := w.read()
	sum := sumOf(sources, err)
	if sum == w.lastRead {
		return
	}
	w.lastRead = sum
	if err == nil && sum == w.active {
		w.report(Event{Kind: Recovered})
		return
	}
	if err == nil {
		err = w.accept(sources)
	}
	if err != nil {
		w.report(Event{Kind: Rejected, Err: err})
		return
	}
	w.active = sum
	w.report(Event{Kind: Applied})
	w.unsaved = newLastGood(w.version, sources)
	w.save()
}

// accept parses the sources and applies them.
func (w *Watcher) accept(sources []source) error {
	document, err := parseSources(sources)
	if err != nil {
		return err
	}
	if err := w.options.Apply(document); err != nil {
		return err
	}
	w.version = document.Rules.Version()
	return nil
}

// save writes the active rules to LastGoodFile. A failure is reported once per distinct error.
func (w *Watcher) save() {
	if w.options.LastGoodFile == "" {
		w.unsaved = nil
		return
	}
	w.lastSave = time.Now()
	err := w.unsaved.write(w.options.LastGoodFile)
	if err == nil {
		w.unsaved, w.saveErr = nil, ""
		return
	}
	if err.Error() != w.saveErr {
		w.saveErr = err.Error()
		w.report(Event{Kind: SaveFailed, Err: err})
	}
}

// retrySave retries a failed save after rereadInterval: the cause, such as a full disk, may be gone.
func (w *Watcher) retrySave() {
	if w.unsaved != nil && time.Since(w.lastSave) >= rereadInterval {
		w.save()
	}
}

// report reports an event with the version of the active rules.
func (w *Watcher) report(e Event) {
	e.Version = w.version
	w.options.Report(e)
}
