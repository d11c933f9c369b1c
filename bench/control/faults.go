package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
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
	prepare    func(ctx context.Context, w *world) error
	begin, end func(w *world)
	// meanwhile, if not nil, is what is seen before its end.
	meanwhile func(ctx context.Context, w *world) (figure, error)
}

func allFaults() []fault {
	hang := func(w *world) { w.primary.Pause() }
	return []fault{
		{
			name: "killed, started again", short: true,
			begin: func(w *world) { w.primary.Kill() },
			end:   func(w *world) { w.primary.Restart(w.scope) },
		},
		{name: "hangs (SIGSTOP), goes on", begin: hang, end: func(w *world) { w.primary.Resume() }},
		{
			name: "has a full disk, and room again", fills: true, meanwhile: noRoom,
			begin: func(w *world) { w.primary.Fill(w.scope) },
			end:   func(w *world) { w.primary.Free(w.scope) },
		},
		{name: "hangs for ever, its standby is promoted", once: true, begin: hang, end: func(w *world) { w.standby.Promote(w.scope) }},
		{
			name: "put back to an older state", short: true, prepare: save, meanwhile: older,
			begin: func(w *world) { w.present().Load(w.scope) },
		},
	}
}

// faults happen one after the other, while nodes are asked at a steady rate and another one is killed and started again.
func faults(ctx context.Context, w *world, r *report) error {
	for _, f := range allFaults() {
		if w.short && !f.short || f.fills && !w.small {
			fmt.Fprintf(os.Stderr, "PostgreSQL %s: left out\n", f.name)
			continue
		}
		for try := 1; ; try++ {
			figures, err := f.run(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			if try < tries && !f.once && onlySlow(figures) {
				fmt.Fprintf(os.Stderr, "PostgreSQL %s: %s: once more\n", f.name, figures[0].text)
				continue
			}
			r.line("PostgreSQL "+f.name, figures...)
			break
		}
	}
	return nil
}

// onlySlow is true if nothing but the first figure is missed, the latency, for which the machine may be to blame.
func onlySlow(figures []figure) bool {
	return !figures[0].met && !slices.ContainsFunc(figures[1:], func(f figure) bool { return !f.met })
}

func (f *fault) run(ctx context.Context, w *world) ([]figure, error) {
	if f.prepare != nil {
		if err := f.prepare(ctx, w); err != nil {
			return nil, err
		}
	}
	if _, err := w.reach(ctx, "anybody", w.limit); err != nil {
		return nil, err
	}
	before, hold := 4*time.Second, 10*time.Second // nodes look for changes more than once
	if w.short {
		before, hold = 2*time.Second, 5*time.Second
	}
	l := w.load(ctx)
	defer l.stop()
	time.Sleep(before)
	began := time.Now()
	f.begin(w)
	restarted, err := w.restart(ctx)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(began.Add(hold)))
	ended, limit := time.Now(), w.limit
	var seen []figure
	if f.meanwhile != nil {
		figure, err := f.meanwhile(ctx, w)
		if err != nil {
			return nil, err
		}
		seen = append(seen, figure)
	}
	mended := time.Now()
	if f.end != nil {
		f.end(w)
	}
	published, err := w.publishAgain(ctx)
	if err != nil {
		return nil, err
	}
	took := published.Sub(mended)
	reached, err := w.reach(ctx, "anybody", w.limit)
	if err != nil {
		return nil, err
	}
	l.stop()
	all, errs, _ := l.count(time.Time{}, time.Now(), limit)
	checks, _, others := l.count(began, ended, limit)
	is, was, beside := l.p99(began, ended, false), l.p99(time.Time{}, began, false), l.p99(began, ended, true)
	return append([]figure{
		says(is <= max(was, beside)+maxSlower, "p99 of checks %s (≤ before, %s, or now with a file, %s, + %s)", span(is), span(was),
			span(beside), span(maxSlower)),
		says(errs == 0, "%d checks, %d errors", all, errs), says(others == 0, "%d of %d meanwhile decided otherwise", others, checks),
		atMost("a node started meanwhile decides after", restarted, maxRestart), noted("a change can be published %s after the end", span(took)),
		atMost("it is on all nodes after", reached, maxPolled),
	}, seen...), nil
}

// restart kills a node, and is how long it takes until it decides again by the last limit.
func (w *world) restart(ctx context.Context) (time.Duration, error) {
	n := w.nodes[loaded]
	n.Kill()
	began := time.Now()
	n.Start()
	err := n.until(ctx, path, "anybody", w.limit)
	return time.Since(began), err
}

// publishAgain makes a change as soon as PostgreSQL takes one.
func (w *world) publishAgain(ctx context.Context) (at time.Time, err error) {
	err = await("a change", func() (bool, error) {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := w.put(asking)
		return err == nil, err
	})
	return time.Now(), err
}

// noRoom is what comes of a change for which there is no room.
func noRoom(ctx context.Context, w *world) (figure, error) {
	many := make([]pgrules.Override, pgrules.MaxOverrides)
	for i := range many {
		many[i] = pgrules.Override{Rule: rule, Subject: headgate.Attributes{"user": fmt.Sprintf("many-%d", i)}, Text: "1/hour"}
	}
	_, err := w.db.SetOverrides(ctx, ann, many)
	full := err != nil && strings.Contains(err.Error(), "No space left on device")
	if !full {
		w.scope.Log("a change without room: ", err)
	}
	return so(full, "a change meanwhile is refused, as there is no space left"), nil
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
func save(ctx context.Context, w *world) error {
	w.present().Save(w.scope)
	for range 3 {
		if _, err := w.put(ctx); err != nil {
			return err
		}
	}
	return nil
}

// older is what nodes say of it, and that the next version is above theirs.
func older(ctx context.Context, w *world) (figure, error) {
	if err := w.each(func(n *node) error { return n.troubled(ctx, "earlier state") }); err != nil {
		return figure{}, err
	}
	var most int64
	told := 0
	err := await("all nodes say so in PostgreSQL", func() (bool, error) {
		nodes, err := w.db.Nodes(ctx)
		told = 0
		for _, n := range nodes {
			if strings.Contains(n.Problem, "earlier state") {
				told, most = told+1, max(most, n.Version)
			}
		}
		return told == len(w.nodes), err
	})
	if err != nil {
		return figure{}, err
	}
	present, _, _, err := w.db.Present(ctx)
	if err != nil {
		return figure{}, err
	}
	next, err := w.put(ctx)
	if err != nil {
		return figure{}, err
	}
	return says(present < most && next > most, "all %d nodes, at version %d, refuse to go back to %d and say so; the next is %d",
		told, most, present, next), nil
}
