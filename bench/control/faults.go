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
	// tries is how often a fault may happen until the machine lets answers be in time.
	tries = 3
)

// fault is something that happens to PostgreSQL.
type fault struct {
	name  string
	short bool // in the short form too
	fills bool // the disk
	once  bool // and not again
	// prepare comes first, begin lets it happen, and end mends it. Where there is nothing to prepare or to mend they are nil.
	prepare, begin, end func(t *suite.Scope)
	// meanwhile, if not nil, is what is seen before its end.
	meanwhile func(t *suite.Scope) suite.Figure
}

func (w *world) allFaults() []fault {
	hang := func(*suite.Scope) { w.primary.Pause() }
	return []fault{
		{
			name: "killed, started again", short: true,
			begin: func(*suite.Scope) { w.primary.Kill() }, end: func(t *suite.Scope) { w.primary.Restart(t) },
		},
		{name: "hangs (SIGSTOP), goes on", begin: hang, end: func(*suite.Scope) { w.primary.Resume() }},
		{
			name: "has a full disk, and room again", fills: true, meanwhile: w.noRoom,
			begin: func(t *suite.Scope) { w.primary.Fill(t) }, end: func(t *suite.Scope) { w.primary.Free(t) },
		},
		{name: "hangs for ever, its standby is promoted", once: true, begin: hang, end: func(t *suite.Scope) { w.standby.Promote(t) }},
		{
			name: "put back to an older state", short: true, prepare: w.save, meanwhile: w.older,
			begin: func(t *suite.Scope) { w.present().Load(t) },
		},
	}
}

// faults happen one after the other, while nodes are asked at a steady rate and another one is killed and started again.
func (w *world) faults(t *suite.Scope) {
	for _, f := range w.allFaults() {
		if w.short && !f.short || f.fills && !w.small {
			t.Logf("PostgreSQL %s: left out", f.name)
			continue
		}
		for try := 1; ; try++ {
			figures := w.suffer(t, &f)
			if try < tries && !f.once && onlySlow(figures) {
				t.Logf("PostgreSQL %s: %s: once more", f.name, figures[0].Text)
				continue
			}
			w.Line("PostgreSQL "+f.name, figures...)
			break
		}
	}
}

// onlySlow is true if nothing but the first figure is missed, the latency, for which the machine may be to blame.
func onlySlow(figures []suite.Figure) bool {
	return !figures[0].Met && !slices.ContainsFunc(figures[1:], func(f suite.Figure) bool { return !f.Met })
}

// suffer is what is seen of a fault.
func (w *world) suffer(t *suite.Scope, f *fault) []suite.Figure {
	if f.prepare != nil {
		f.prepare(t)
	}
	w.reach(t, "anybody", w.limit)
	before, hold := 4*time.Second, 10*time.Second // nodes look for changes more than once
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
	var seen []suite.Figure
	if f.meanwhile != nil {
		seen = append(seen, f.meanwhile(t))
	}
	mended := time.Now()
	if f.end != nil {
		f.end(t)
	}
	w.publishAgain(t)
	took := time.Since(mended)
	reached := w.reach(t, "anybody", w.limit)
	l.stop()
	all, errs, _ := l.count(time.Time{}, time.Now(), limit)
	checks, _, others := l.count(began, ended, limit)
	is, was, beside := l.p99(began, ended, false), l.p99(time.Time{}, began, false), l.p99(began, ended, true)
	return append([]suite.Figure{
		suite.Judged(is <= max(was, beside)+maxSlower, "p99 of checks %s (≤ before, %s, or now with a file, %s, + %s)", suite.FormatDuration(is),
			suite.FormatDuration(was), suite.FormatDuration(beside), suite.FormatDuration(maxSlower)),
		suite.Judged(errs == 0, "%d checks, %d errors", all, errs),
		suite.Judged(others == 0, "%d of %d meanwhile decided otherwise", others, checks),
		suite.MaxDuration("a node started meanwhile decides after", restarted, maxRestart),
		suite.Note("a change can be published %s after the end", suite.FormatDuration(took)),
		suite.MaxDuration("it is on all nodes after", reached, maxPolled),
	}, seen...)
}

// restart kills a node, and is how long it takes until it decides again by the last limit.
func (w *world) restart(t *suite.Scope) time.Duration {
	n := w.nodes[loaded]
	n.Kill()
	began := time.Now()
	n.Start()
	testenv.NoError(t, n.until(t.Context(), path, "anybody", w.limit))
	return time.Since(began)
}

// publishAgain makes a change as soon as PostgreSQL takes one.
func (w *world) publishAgain(t *suite.Scope) {
	testenv.NoError(t, await("a change", func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := w.tryPut(ctx, w.db)
		return err == nil, err
	}))
}

// noRoom is what comes of a change for which there is no room.
func (w *world) noRoom(t *suite.Scope) suite.Figure {
	many := make([]pgrules.Override, pgrules.MaxOverrides)
	for i := range many {
		many[i] = pgrules.Override{Rule: rule, Subject: headgate.Attributes{"user": fmt.Sprintf("many-%d", i)}, Limit: "1/hour"}
	}
	_, err := w.db.SetOverrides(t.Context(), ann, many)
	full := err != nil && strings.Contains(err.Error(), "No space left on device")
	if !full {
		t.Log("a change without room: ", err)
	}
	return suite.Holds(full, "a change meanwhile is denied, as there is no space left")
}

// present is the server that takes writes.
func (w *world) present() *testenv.Postgres {
	if w.short {
		return w.primary
	}
	w.primary.Kill() // if it only hangs
	return w.standby
}

// save keeps a copy of the database, and then makes three changes.
func (w *world) save(t *suite.Scope) {
	w.present().Save(t)
	for range 3 {
		w.put(t)
	}
}

// older is what nodes say of it, and that the next version is above theirs.
func (w *world) older(t *suite.Scope) suite.Figure {
	w.become(t, "degraded", "earlier state")
	var most int64
	told := 0
	testenv.NoError(t, await("all nodes say so in PostgreSQL", func() (bool, error) {
		nodes, err := w.db.Nodes(t.Context())
		told = 0
		for _, n := range nodes {
			if strings.Contains(n.Problem, "earlier state") {
				told, most = told+1, max(most, n.Version)
			}
		}
		return told == len(w.nodes), err
	}))
	now, _ := present(t, w.db)
	next := w.put(t)
	return suite.Judged(now < most && next > most, "all %d nodes, at version %d, deny to go back to %d and say so; the next is %d",
		told, most, now, next)
}
