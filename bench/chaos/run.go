package main

import (
	"cmp"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/bench/internal/timeline"
	"github.com/headgate/headgate/internal/testenv"
)

// outcome is the result of one fault, as callers saw it. Times are since the load began.
type outcome struct {
	fault    *fault
	start    time.Time
	samples  []sample
	marks    []timeline.Mark
	affected map[int]bool
	stalls   stalls

	measured time.Duration // end of the warm-up
	begin    time.Duration // of the fault
	restored time.Duration // when the store accepted writes again; stop if it did not
	stop     time.Duration // of the load

	opened      []int // openings of circuits, by node
	maxOpened   int   // openings of the circuit of the worst shard
	unanswered  int64 // units that the store was charged for without a response
	leaseLost   int64 // units leased and neither spent nor returned
	lost        int64 // requests sent without a response, whose units may have been admitted
	unaccounted int64 // units by which the store's counters differ from the units admitted
	accounts    bool  // whether the four above are known
}

// tries is how often a fault runs at most until the machine did not disturb it; shortTries with -short.
const tries, shortTries = 5, 3

// runUndisturbed repeats a fault if the machine stalled too often, or if only targets were missed that a slow machine may cause.
// If the machine stalls in every try, only the targets are judged that a stalled machine cannot cause to be missed.
func (f *fault) runUndisturbed(scope *suite.Scope, program string, attempts int) (o *outcome, rows []row) {
	for attempt := 1; ; attempt++ {
		testenv.NoError(scope, scope.Run(func(own *suite.Scope) {
			o = f.run(&world{Scope: own, program: program, rate: cmp.Or(f.rate, usualRate)})
		}))
		rows = o.rows()
		slow, stalled := false, o.stalledShare()
		for i := range rows {
			slow = slow || rows[i].onlySlow(stalled > minStalled)
		}
		scope.Logf("%s: requests were sent late by %s ms, %.1f %% of them ignored; slow: %v", f.name, o.late(), 100*stalled, slow)
		if !slow && stalled <= maxStalled {
			return o, rows
		}
		if attempt < attempts {
			continue
		}
		for i := range rows {
			if stalled > minStalled {
				rows[i].excuseStalls()
			}
		}
		return o, rows
	}
}

// run injects one fault into a new world.
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
	if f.fromStart {
		lead, o.measured, o.start = 0, 0, time.Now()
	}
	stop := w.begin(o.start, lead)
	defer stop()
	suite.SleepUntil(w.Context(), o.start.Add(lead))
	f.inject(w)
	o.settle(w, time.Now())
	testenv.NoError(w, w.Context().Err())
	stop()
	o.samples, o.marks, o.affected = w.load.sorted(), w.marks, w.affected
	if f.nodes == nil { // nodes in this process may cause its stalls
		o.stalls = stallsOf(o.samples)
	}
	o.account(w)
	return o
}

// atPhase returns the next time at the phase of a window in which faults begin.
func atPhase(t time.Time) time.Time {
	next := t.Truncate(window).Add(phase)
	if next.Before(t) {
		next = next.Add(window)
	}
	return next
}

// settle waits for the recovery of the store and for the measurements after it.
func (o *outcome) settle(w *world, ended time.Time) {
	if !o.fault.fromStart {
		o.begin = w.marks[0].At
	}
	if o.fault.permanent {
		o.restored, o.stop = time.Since(o.start), time.Since(o.start)
		return
	}
	restored, ok := time.Time{}, false
	for !ok && w.Context().Err() == nil && time.Since(ended) < 30*time.Second {
		restored, ok = w.restored(ended)
		w.Sleep(probeEvery)
	}
	o.restored = restored.Sub(o.start)
	w.marks = append(w.marks, timeline.Mark{At: o.restored, Label: "Redis available"})
	suite.SleepUntil(w.Context(), restored.Add(after+window/2))
	o.stop = time.Since(o.start)
}

// restored returns when all of the store accepted writes again: at the end of the last outage, or when the fault ended if there
// was none.
func (w *world) restored(ended time.Time) (time.Time, bool) {
	begin := w.load.start.Add(w.marks[0].At)
	last := w.announced
	for _, p := range w.probes {
		t, ok := p.restored(begin)
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

// account reads the counts of the nodes and of the store, once no charge is pending.
func (o *outcome) account(w *world) {
	for _, n := range w.nodes {
		all, worst := n.opened(o.start.Add(o.begin))
		o.opened = append(o.opened, all)
		o.maxOpened = max(o.maxOpened, worst)
	}
	if o.fault.permanent || o.fault.nodes != nil {
		return
	}
	o.accounts = true
	w.awaitZero(pending)
	w.awaitZero("headgate_leases")
	w.Sleep(returnDelay)
	admitted := map[int]int64{}
	for i := range o.samples {
		switch s := &o.samples[i]; {
		case !s.accounted():
		case s.Allowed:
			admitted[s.User]++
		case s.Sent && s.Status == 0:
			o.lost++
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
	// returnDelay is how long nodes take to return the units of ended leases to the store.
	returnDelay = 500 * time.Millisecond
	// pending is the gauge of local counters with units that were not yet charged to the store.
	pending = "headgate_local_counters_pending"
)

// awaitZero waits until a gauge is 0 on all nodes, for at most about ten seconds.
func (w *world) awaitZero(gauge string) {
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
