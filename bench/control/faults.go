package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	maxSlower  = 2 * time.Millisecond
	maxRestart = 5 * time.Second
	// tries is how often a fault is repeated if only latencies missed their target, which a busy machine may cause.
	tries = 3
	// stalled is a p99 of checks without a fault that only a machine that stalls has: its usual one is below 5 ms.
	stalled = 20 * time.Millisecond
)

// fault is a fault of PostgreSQL.
type fault struct {
	name  string
	short bool // also in short runs
	fills bool // fills the disk
	once  bool // cannot be repeated
	// prepare runs before the fault, begin causes it and end repairs it. prepare and end may be nil.
	prepare, begin, end func(t *suite.Scope)
	// during, if not nil, returns a figure measured before the end of the fault.
	during func(t *suite.Scope) suite.Figure
}

func (w *world) allFaults() []fault {
	hang := func(*suite.Scope) { w.primary.Pause() }
	return []fault{
		{
			name: "killed, restarted", short: true,
			begin: func(*suite.Scope) { w.primary.Kill() }, end: func(t *suite.Scope) { w.primary.Restart(t) },
		},
		{name: "hangs (SIGSTOP), resumes", begin: hang, end: func(*suite.Scope) { w.primary.Resume() }},
		{
			name: "has a full disk, then free space", fills: true, during: w.diskFull,
			begin: func(t *suite.Scope) { w.primary.Fill(t) }, end: func(t *suite.Scope) { w.primary.Free(t) },
		},
		{name: "hangs permanently, its standby is promoted", once: true, begin: hang, end: func(t *suite.Scope) { w.standby.Promote(t) }},
		{
			name: "restored to an older state", short: true, prepare: w.save, during: w.olderState,
			begin: func(t *suite.Scope) { w.present().Load(t) },
		},
	}
}

// faults runs all faults in turn, while nodes are under a steady load and another node is killed and restarted.
func (w *world) faults(t *suite.Scope) {
	for _, f := range w.allFaults() {
		if w.short && !f.short || f.fills && !w.small {
			t.Logf("PostgreSQL %s: skipped", f.name)
			continue
		}
		for try := 1; ; try++ {
			figures := w.runFault(t, &f)
			if try < tries && !f.once && onlySlow(figures) {
				t.Logf("PostgreSQL %s: %s: repeating", f.name, figures[0].Text)
				continue
			}
			w.Line("PostgreSQL "+f.name, figures...)
			break
		}
	}
}

// onlySlow reports whether only the first figure, the latency, missed its target. The machine may be the cause.
func onlySlow(figures []suite.Figure) bool {
	return !figures[0].Met && !slices.ContainsFunc(figures[1:], func(f suite.Figure) bool { return !f.Met })
}

// runFault runs a fault and returns its figures.
func (w *world) runFault(t *suite.Scope, f *fault) []suite.Figure {
	if f.prepare != nil {
		f.prepare(t)
	}
	w.awaitLimit(t, "any-user", w.limit)
	before, hold := 4*time.Second, 10*time.Second // nodes poll for changes more than once
	if w.short {
		before, hold = 2*time.Second, 5*time.Second
	}
	l := w.load(t.Context())
	defer l.stop()
	time.Sleep(before)
	began := time.Now()
	f.begin(t)
	restarted := w.restart(t)
	time.Sleep(time.Until(began.Add(hold)))
	ended, limit := time.Now(), w.limit
	var extra []suite.Figure
	if f.during != nil {
		extra = append(extra, f.during(t))
	}
	repaired := time.Now()
	if f.end != nil {
		f.end(t)
	}
	w.publishAgain(t)
	elapsed := time.Since(repaired)
	reached := w.awaitLimit(t, "any-user", w.limit)
	l.stop()
	all, errs, _ := l.count(time.Time{}, time.Now(), limit)
	checks, _, others := l.count(began, ended, limit)
	latency, usual, withFile := l.p99(began, ended, false), l.p99(time.Time{}, began, false), l.p99(began, ended, true)
	slowness := suite.Judged(latency <= max(usual, withFile)+maxSlower, "p99 of checks %s (≤ %s before or %s of the node with a file, + %s)", suite.FormatDuration(latency),
		suite.FormatDuration(usual), suite.FormatDuration(withFile), suite.FormatDuration(maxSlower))
	if !slowness.Met && max(usual, withFile) > stalled {
		slowness = suite.Note("%s: not judged, as the machine stalled", slowness.Text)
	}
	return append([]suite.Figure{
		slowness,
		suite.Judged(errs == 0, "%d checks, %d errors", all, errs),
		suite.Judged(others == 0, "%d of %d decisions during the fault differ", others, checks),
		suite.MaxDuration("a node started during the fault is ready after", restarted, maxRestart),
		suite.Note("a change can be published %s after the fault", suite.FormatDuration(elapsed)),
		suite.MaxDuration("it is in force on all nodes after", reached, maxPolled),
	}, extra...)
}

// restart kills and restarts a node, and returns how long it takes until it applies the last limit.
func (w *world) restart(t *suite.Scope) time.Duration {
	n := w.nodes[loadedNodes]
	n.Kill()
	began := time.Now()
	n.Start()
	testenv.NoError(t, n.awaitLimit(t.Context(), path, "any-user", w.limit))
	return time.Since(began)
}

// publishAgain makes a change as soon as PostgreSQL accepts writes.
func (w *world) publishAgain(t *suite.Scope) {
	testenv.NoError(t, await("a change", func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := w.tryChangeLimit(ctx, w.db)
		return err == nil, err
	}))
}

// diskFull makes a change that does not fit on the disk and expects an error.
func (w *world) diskFull(t *suite.Scope) suite.Figure {
	many := make([]pgrules.Override, pgrules.MaxOverrides)
	for i := range many {
		many[i] = pgrules.Override{Rule: rule, Subject: headgate.Attributes{"user": fmt.Sprintf("many-%d", i)}, Limit: "1/hour"}
	}
	_, err := w.db.SetOverrides(t.Context(), ann, many)
	full := err != nil && strings.Contains(err.Error(), "No space left on device")
	if !full {
		t.Log("change on a full disk: ", err)
	}
	return suite.Holds(full, "a change during the fault fails with no space left")
}

// present returns the server that accepts writes.
func (w *world) present() *testenv.Postgres {
	if w.short {
		return w.primary
	}
	w.primary.Kill() // it may only hang
	return w.standby
}

// save copies the database and then makes three changes.
func (w *world) save(t *suite.Scope) {
	w.present().Save(t)
	for range 3 {
		w.changeLimit(t)
	}
}

// olderState expects nodes to reject the older state, and the next version to be above theirs.
func (w *world) olderState(t *suite.Scope) suite.Figure {
	w.awaitStatus(t, "degraded", "earlier state")
	var highest int64
	reported := 0
	testenv.NoError(t, await("problem of all nodes in PostgreSQL", func() (bool, error) {
		nodes, err := w.db.Nodes(t.Context())
		reported = 0
		for _, n := range nodes {
			if strings.Contains(n.Problem, "earlier state") {
				reported, highest = reported+1, max(highest, n.Version)
			}
		}
		return reported == len(w.nodes), err
	}))
	now, _ := present(t, w.db)
	next := w.changeLimit(t)
	return suite.Judged(now < highest && next > highest, "all %d nodes, at version %d, reject version %d and report it; the next is %d",
		reported, highest, now, next)
}
