package main

import (
	"cmp"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/bench/internal/timeline"
	"github.com/headgate/headgate/internal/testenv"
)

// outcome is what callers saw of one fault. Times are since the load began.
type outcome struct {
	fault   *fault
	start   time.Time
	samples []sample
	marks   []timeline.Mark
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
func (f *fault) runUndisturbed(scope *suite.Scope, program string) (o *outcome, rows []row) {
	for try := 1; ; try++ {
		testenv.NoError(scope, scope.Run(func(own *suite.Scope) {
			o = f.run(&world{Scope: own, program: program, rate: cmp.Or(f.rate, usualRate)})
		}))
		rows = o.rows()
		slow, stood := false, o.stood()
		for i := range rows {
			slow = slow || rows[i].bySlowness(stood > someStood)
		}
		scope.Logf("%s: requests were sent late by %s ms, %.1f %% of them left out; slow: %v", f.name, o.late(), 100*stood, slow)
		if !slow && stood <= maxStood || try == tries {
			return o, rows
		}
	}
}

// run lets one fault happen in a world of its own.
func (f *fault) run(w *world) *outcome {
	f.build(w)
	if f.nodes != nil {
		f.nodes(w)
	} else {
		startNodes(w)
	}
	o := &outcome{fault: f, measured: warmUp}
	lead := warmUp + before
	o.start = atPhase(time.Now().Add(lead)).Add(-lead)
	if f.cold {
		lead, o.measured, o.start = 0, 0, time.Now()
	}
	stop := w.begin(o.start, lead)
	defer stop()
	suite.SleepUntil(w.Context(), o.start.Add(lead))
	f.happen(w)
	o.settle(w, time.Now())
	testenv.NoError(w, w.Context().Err())
	stop()
	o.samples, o.marks, o.hit = w.load.taken(), w.marks, w.hit
	if f.nodes == nil { // nodes in this process may themselves be why it stood still
		o.stalls = stallsOf(o.samples)
	}
	o.account(w)
	return o
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
func (o *outcome) settle(w *world, ended time.Time) {
	if !o.fault.cold {
		o.begin = w.marks[0].At
	}
	if o.fault.stays {
		o.back, o.stop = time.Since(o.start), time.Since(o.start)
		return
	}
	back, ok := time.Time{}, false
	for !ok && w.Context().Err() == nil && time.Since(ended) < 30*time.Second {
		back, ok = w.back(ended)
		w.Sleep(probeEvery)
	}
	o.back = back.Sub(o.start)
	w.marks = append(w.marks, timeline.Mark{At: o.back, Label: "Redis answers"})
	suite.SleepUntil(w.Context(), back.Add(after+window/2))
	o.stop = time.Since(o.start)
}

// back is when all of the store took writes again: at the end of the last time when it did not, or when the fault ended if
// it always did.
func (w *world) back(ended time.Time) (time.Time, bool) {
	begin := w.load.start.Add(w.marks[0].At)
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
func (o *outcome) account(w *world) {
	for _, n := range w.nodes {
		all, most := n.opened(o.start.Add(o.begin))
		o.opened = append(o.opened, all)
		o.openedMost = max(o.openedMost, most)
	}
	if o.fault.stays || o.fault.nodes != nil {
		return
	}
	o.accounts = true
	w.awaitNone(pending)
	w.awaitNone("headgate_leases")
	w.Sleep(returnsTake)
	admitted := map[int]int64{}
	for i := range o.samples {
		if s := &o.samples[i]; s.Allowed && s.accounted() {
			admitted[s.User]++
		}
	}
	for user, units := range admitted {
		used := w.used(user)
		o.unaccounted += max(units-used, used-units)
	}
	for _, n := range w.nodes {
		o.unanswered += int64(w.metric(n, "headgate_store_unanswered_total"))
		o.leaseLost += int64(w.metric(n, "headgate_lease_units_lost_total"))
	}
}

const (
	// returnsTake is how long the units of leases that have ended are on their way back to the store.
	returnsTake = 500 * time.Millisecond
	// pending is what nodes admitted by themselves and have not charged the store with.
	pending = "headgate_local_counters_pending"
)

// awaitNone waits until a gauge is 0 on all nodes, but not for ever.
func (w *world) awaitNone(gauge string) {
	for range 100 {
		var sum float64
		for _, n := range w.nodes {
			sum += w.metric(n, gauge)
		}
		if sum == 0 {
			return
		}
		w.Sleep(100 * time.Millisecond)
	}
}
