package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
)

// outcome is what callers saw of one fault. Times are since the load began.
type outcome struct {
	fault   *fault
	start   time.Time
	samples []sample
	marks   []mark
	hit     map[int]bool
	stalls  stalls

	measured time.Duration // what was before is warm-up
	begin    time.Duration // of the fault
	back     time.Duration // when the store took writes again; stop if it did not
	stop     time.Duration // of the load

	opened      []int // how often circuits of each node opened
	openedMost  int   // that of one shard
	unanswered  int64 // units that the store was asked for
	leaseLost   int64 // units leased and neither spent nor returned
	unaccounted int64 // units by which the store's counters differ from what was admitted
	accounts    bool  // whether these are known
}

// tries is how often a fault may happen until the machine has let all answers be in time.
const tries = 5

// runUndisturbed tries again if the machine had other things to do, or if nothing was missed that it may not be to blame for.
func (f *fault) runUndisturbed(ctx context.Context, program string) (o *outcome, rows []row, err error) {
	for try := 1; ; try++ {
		if o, err = f.run(ctx, program); err != nil {
			return nil, nil, err
		}
		rows = o.rows()
		slow, stood := false, o.stood()
		for i := range rows {
			slow = slow || rows[i].bySlowness(stood > someStood)
		}
		fmt.Fprintf(os.Stderr, "%s: requests were sent late by %s ms, %.1f %% of them left out; slow: %v\n",
			f.name, o.late(), 100*stood, slow)
		if !slow && stood <= maxStood || try == tries {
			return o, rows, nil
		}
	}
}

// run lets one fault happen in a world of its own.
func (f *fault) run(ctx context.Context, program string) (*outcome, error) {
	scope := &paired.Scope{}
	defer scope.Close()
	w := &world{ctx: ctx, scope: scope, program: program, rate: cmp.Or(f.rate, usualRate)}
	if err := f.build(w); err != nil {
		return nil, err
	}
	start := w.startNodes
	if f.nodes != nil {
		start = func() error { return f.nodes(w) }
	}
	if err := start(); err != nil {
		return nil, err
	}
	o := &outcome{fault: f, measured: warmUp}
	lead := warmUp + before
	o.start = atPhase(time.Now().Add(lead)).Add(-lead)
	if f.cold {
		lead, o.measured, o.start = 0, 0, time.Now()
	}
	stop := w.begin(o.start, lead)
	sleepUntil(ctx, o.start.Add(lead))
	err := f.happen(w)
	if err == nil {
		o.settle(ctx, w, time.Now())
		err = ctx.Err()
	}
	stop()
	if err != nil {
		return nil, err
	}
	o.samples, o.marks, o.hit = w.load.taken(), w.marks, w.hit
	if f.nodes == nil { // nodes in this process may themselves be why it stood still
		o.stalls = stallsOf(o.samples)
	}
	err = o.account(ctx, w)
	return o, err
}

// atPhase is the next time that is as far into a window as faults begin.
func atPhase(t time.Time) time.Time {
	next := t.Truncate(window).Add(phase)
	if next.Before(t) {
		next = next.Add(window)
	}
	return next
}

// settle waits for the store and for what is measured after its return.
func (o *outcome) settle(ctx context.Context, w *world, ended time.Time) {
	if !o.fault.cold {
		o.begin = time.Duration(w.marks[0].T * float64(time.Second))
	}
	if o.fault.stays {
		o.back, o.stop = time.Since(o.start), time.Since(o.start)
		return
	}
	back, ok := time.Time{}, false
	for !ok && ctx.Err() == nil && time.Since(ended) < 30*time.Second {
		back, ok = w.back(ended)
		w.sleep(probeEvery)
	}
	o.back = back.Sub(o.start)
	w.marks = append(w.marks, mark{o.back.Seconds(), "Redis answers"})
	sleepUntil(ctx, back.Add(after+window/2))
	o.stop = time.Since(o.start)
}

// back is when all of the store took writes again: at the end of the last time when it did not, or when the fault ended if
// it always did.
func (w *world) back(ended time.Time) (time.Time, bool) {
	begin := w.load.start.Add(time.Duration(w.marks[0].T * float64(time.Second)))
	last := w.announced
	for _, p := range w.probes {
		t, ok := p.back(begin)
		if !ok {
			return ended, false
		}
		if t.After(last) {
			last = t
		}
	}
	if last.IsZero() {
		last = ended
	}
	return last, true
}

// account reads what the nodes and the store have counted, once nothing waits to be charged.
func (o *outcome) account(ctx context.Context, w *world) error {
	for _, n := range w.nodes {
		all, most, err := n.opened(o.start.Add(o.begin))
		if err != nil {
			return err
		}
		o.opened = append(o.opened, all)
		o.openedMost = max(o.openedMost, most)
	}
	if o.fault.stays || o.fault.nodes != nil {
		return nil
	}
	o.accounts = true
	if err := w.awaitCharged(); err != nil {
		return err
	}
	if err := w.awaitNone("headgate_leases"); err != nil {
		return err
	}
	w.sleep(returnsTake)
	admitted := map[int]int64{}
	for i := range o.samples {
		if s := &o.samples[i]; s.Allowed && s.accounted() {
			admitted[s.User]++
		}
	}
	for user, units := range admitted {
		used, err := w.nodes[0].used(ctx, user)
		if err != nil {
			return err
		}
		o.unaccounted += max(units-used, used-units)
	}
	for _, n := range w.nodes {
		for name, sum := range map[string]*int64{
			"headgate_store_unanswered_total": &o.unanswered, "headgate_lease_units_lost_total": &o.leaseLost,
		} {
			units, err := n.metric(ctx, name)
			if err != nil {
				return err
			}
			*sum += int64(units)
		}
	}
	return nil
}

// returnsTake is how long the units of leases that have ended are on their way back to the store.
const returnsTake = 500 * time.Millisecond

// awaitCharged waits until nodes have charged the store with what they admitted by themselves, but not for ever.
func (w *world) awaitCharged() error { return w.awaitNone("headgate_local_counters_pending") }

// awaitNone waits until a gauge is 0 on all nodes, but not for ever.
func (w *world) awaitNone(gauge string) error {
	for range 100 {
		var sum float64
		for _, n := range w.nodes {
			value, err := n.metric(w.ctx, gauge)
			if err != nil {
				return fmt.Errorf("metrics: %w", err)
			}
			sum += value
		}
		if sum == 0 {
			return nil
		}
		w.sleep(100 * time.Millisecond)
	}
	return w.ctx.Err()
}
