package ruledoc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// pollEvery is how often the files are looked at. A poll and the time to settle leave most of the promised second to
	// the loading. Notice from the system (inotify) would be earlier by a poll, but not every file system gives it.
	pollEvery = 250 * time.Millisecond
	// quiet is how long files must rest before they are read, so that a writer can finish.
	quiet = 100 * time.Millisecond
	// longestWait ends the waiting for a writer that never rests, or for a file that is gone: editors and copying
	// programs delete a file and create it again.
	longestWait = 300 * time.Millisecond
	// mistrust is how long a file is read at every poll after its stamp has changed. A second write within the coarsest
	// resolution of file times, two seconds, leaves the stamp as it was.
	mistrust = 2500 * time.Millisecond
	// rereadEvery is how often files are read whatever their stamps say, and keeping is tried again after it failed.
	rereadEvery = 10 * time.Second
)

// WatchOptions say what is watched and who is told.
type WatchOptions struct {
	// Paths are files and directories, as for Load. A directory stands for the files that are in it at the time.
	Paths []string
	// LastGoodFile names a file for the last good rules, with which Watch starts if the files are bad or gone; its directory must
	// exist. Empty means that they do not survive a restart.
	LastGoodFile string
	// Apply takes rules into use: the first ones before Watch returns, others whenever the files say something else. An
	// error denies them as if the files were bad. It is never called twice at a time.
	Apply func(*Document) error
	// Report is told of everything that people should know; nil logs it with package slog. It is never called twice at a
	// time, nor together with Apply.
	Report func(Event)
}

// Watcher keeps the rules in use the same as the files.
type Watcher struct {
	options  WatchOptions
	stopped  chan struct{}
	stamps   []stamp   // of the files when they were last read
	stamped  time.Time // when they first had these stamps
	readAt   time.Time
	readErr  error
	seen     contentSum // of what was last read
	running  contentSum // of what is in use; if seen is another, the files are bad
	version  string
	unkept   *kept
	keepErr  string
	keepTime time.Time
}

// Watch takes the rules in the files into use and does so again whenever the files change, until ctx ends.
//
// A change is in use within a second of the write, whether a file was written in place, renamed over, deleted and
// created, added to or removed from a directory, or is behind a symbolic link that was pointed elsewhere, as Kubernetes
// does with a ConfigMap. Files that say what is already in use change nothing. Nor do files that are bad or gone: they
// are reported once, and the rules in use stay.
//
// At the start there are none in use. If the files are bad or gone then, those of options.LastGoodFile are used; Watch fails
// only if that does not help either.
func Watch(ctx context.Context, options WatchOptions) (*Watcher, error) {
	if len(options.Paths) == 0 || options.Apply == nil {
		return nil, errors.New("watching rules takes WatchOptions.Paths and WatchOptions.Apply: set both")
	}
	if err := checkKeep(options.LastGoodFile, options.Paths); err != nil {
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

// Wait returns when watching has stopped, after the context has ended. Neither Apply nor Report is called any more.
func (w *Watcher) Wait() { <-w.stopped }

// start finds rules to start with: in the files, else in what was kept.
func (w *Watcher) start() error {
	earlier, keepErr := readKept(w.options.LastGoodFile)
	sources, err := w.read()
	w.seen = sumOf(sources, err)
	if err == nil {
		err = w.accept(sources)
	}
	if err != nil {
		return w.startFromKept(earlier, keepErr, err)
	}
	w.running = w.seen
	w.report(Event{Kind: Applied})
	if keepErr != nil {
		w.report(Event{Kind: SaveFailed, Err: keepErr})
	}
	if earlier == nil || sumOf(earlier.Sources, nil) != w.running {
		w.unkept = newKept(w.version, sources)
		w.keep()
	}
	return nil
}

func (w *Watcher) startFromKept(earlier *kept, keepErr, reason error) error {
	switch {
	case w.options.LastGoodFile == "":
		return fmt.Errorf("no rules to start with: correct the files, or name a file for the last good rules in "+
			"WatchOptions.LastGoodFile: %w", reason)
	case keepErr != nil:
		return fmt.Errorf("no rules to start with: correct the files: %w\nand the kept ones do not help: %w", reason, keepErr)
	case earlier == nil:
		return fmt.Errorf("no rules to start with: correct the files; none were kept in %s yet: %w", w.options.LastGoodFile, reason)
	}
	if err := w.accept(earlier.Sources); err != nil {
		return fmt.Errorf("no rules to start with: correct the files: %w\nand those kept in %s on %s are bad too: %w",
			reason, w.options.LastGoodFile, earlier.At.Format(time.RFC3339), err)
	}
	w.running = sumOf(earlier.Sources, nil)
	w.report(Event{Kind: StartedFromLastGood, Err: reason, LastGoodFile: w.options.LastGoodFile, LastGoodTime: earlier.At})
	return nil
}

func (w *Watcher) run(ctx context.Context) {
	defer close(w.stopped)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			if w.mayDiffer() {
				w.settle(ctx)
				w.look(ctx)
			}
			w.keepAgain()
		}
	}
}

// settle waits until the files rest, or ctx ends.
func (w *Watcher) settle(ctx context.Context) {
	began, last := time.Now(), w.scan()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(quiet):
		}
		now := w.scan()
		if !w.unsettled(last, now, time.Since(began)) {
			return
		}
		last = now
	}
}

// unsettled says whether to give the files more time before they are read.
func (w *Watcher) unsettled(last, now []stamp, waited time.Duration) bool {
	return waited < longestWait && (!sameStamps(last, now) || lacksAny(now, w.stamps))
}

// look reads the files and takes what they say into use, unless they say what they said before.
func (w *Watcher) look(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	sources, err := w.read()
	sum := sumOf(sources, err)
	if sum == w.seen {
		return
	}
	w.seen = sum
	if err == nil && sum == w.running {
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
	w.running = sum
	w.report(Event{Kind: Applied})
	w.unkept = newKept(w.version, sources)
	w.keep()
}

// accept parses the sources and has them applied.
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

// keep writes what is in use to the file of the last good rules. A failure is reported once for each reason.
func (w *Watcher) keep() {
	if w.options.LastGoodFile == "" {
		w.unkept = nil
		return
	}
	w.keepTime = time.Now()
	err := w.unkept.write(w.options.LastGoodFile)
	if err == nil {
		w.unkept, w.keepErr = nil, ""
		return
	}
	if err.Error() != w.keepErr {
		w.keepErr = err.Error()
		w.report(Event{Kind: SaveFailed, Err: err})
	}
}

// keepAgain tries once more to keep what could not be kept: a full disk has room again one day.
func (w *Watcher) keepAgain() {
	if w.unkept != nil && time.Since(w.keepTime) >= rereadEvery {
		w.keep()
	}
}

func (w *Watcher) report(e Event) {
	e.Version = w.version
	w.options.Report(e)
}
