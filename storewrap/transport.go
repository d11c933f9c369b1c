package storewrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// Errors of charges that were not sent to the store.
var (
	errOpen = fmt.Errorf("%w: circuit open until the shard answers again", headgate.ErrUnavailable)
	errBusy = fmt.Errorf("%w: too many calls in flight", headgate.ErrUnavailable)
)

// unanswered reports whether the store may have recorded the charge despite the error.
func unanswered(err error) bool { return errors.Is(err, headgate.ErrUnanswered) }

// transport calls the store within a deadline. It calls only shards whose circuit is closed and whose concurrency limit
// allows it.
type transport struct {
	store      headgate.Store
	deadline   time.Duration
	bounded    deadlineStore
	log        *slog.Logger
	observe    func(elapsed time.Duration)
	background *background
	// recovering is called when a shard answers again, before it gets requests, and reports whether it may get them.
	// recovered is called after the circuit has closed.
	recovering func(context.Context, *shard) bool
	recovered  func(context.Context)

	shards      sync.Map     // *shard by number
	unavailable atomic.Int64 // number of shards with an open circuit

	rejected, opened atomic.Int64
	unanswered       atomic.Int64 // units
	errors           [errorKinds]atomic.Int64
}

func newTransport(store headgate.Store, o Options, b *background) *transport {
	return &transport{
		store: store, deadline: o.Deadline, bounded: deadlineStore{store: store, deadline: o.Deadline},
		log: o.Log, observe: o.Observe, background: b,
	}
}

// take sends charges to the shards that are available. Each result has its own error; the returned error is one of them.
func (t *transport) take(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	var scratch [8]*shard
	shards := t.shardsOf(charges, scratch[:0])
	var err error
	if t.enterAll(shards, hasCritical(charges)) {
		err = t.call(now, charges, results, shards)
	} else {
		t.takeAvailable(charges, results, shards)
		err = errOpen
	}
	if err != nil {
		t.countError(results)
	}
	return err
}

// takeInBackground calls the store for background work, with a longer timeout. It completes even if ctx ends.
func (t *transport) takeInBackground(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backgroundTimeout)
	defer cancel()
	return t.store.Take(ctx, charges, results)
}

// call calls the store for shards that were entered, and records the outcome.
func (t *transport) call(now time.Time, charges []headgate.Charge, results []headgate.Result, shards []*shard) error {
	err := t.bounded.take(now, charges, results)
	elapsed := time.Since(now)
	t.observe(elapsed)
	t.finish(now, elapsed, charges, results, shards)
	return err
}

// takeAvailable sends the charges on shards that are available and not busy.
func (t *transport) takeAvailable(charges []headgate.Charge, results []headgate.Result, shards []*shard) {
	critical := hasCritical(charges)
	var callCharges []headgate.Charge
	var callShards []*shard
	var index []int
	for i, s := range shards {
		switch {
		case s.open.Load():
			results[i] = headgate.Result{Err: errOpen}
			continue
		case !slices.Contains(callShards, s) && !t.enter(s, critical):
			t.rejected.Add(1)
			results[i] = headgate.Result{Err: errBusy}
			continue
		}
		callCharges, callShards, index = append(callCharges, charges[i]), append(callShards, s), append(index, i)
	}
	if len(callCharges) == 0 {
		return
	}
	callResults := make([]headgate.Result, len(callCharges))
	// The time starts here: waiting for a turn says nothing about the store. Each result has its own error.
	_ = t.call(time.Now(), callCharges, callResults, callShards)
	for i, at := range index {
		results[at] = callResults[i]
	}
}

// enter starts a call to a shard. If the shard is busy, it waits up to half of the deadline, provided that its turn may come
// in time.
func (t *transport) enter(s *shard, critical bool) bool {
	if s.calls.enter(critical) {
		return true
	}
	if !s.calls.await(critical, t.deadline/2) {
		return false
	}
	if s.open.Load() { // opened in the meantime
		s.calls.leave()
		return false
	}
	return true
}

// enterAll starts a call to all shards if all circuits are closed and all concurrency limits allow it.
func (t *transport) enterAll(shards []*shard, critical bool) bool {
	for i, s := range shards {
		if slices.Contains(shards[:i], s) {
			continue
		}
		if !s.open.Load() && s.calls.enter(critical) {
			continue
		}
		for j, entered := range shards[:i] {
			if !slices.Contains(shards[:j], entered) {
				entered.calls.leave()
			}
		}
		return false
	}
	return true
}

// hasCritical reports whether a charge is critical. Such a request is rejected last.
func hasCritical(charges []headgate.Charge) bool {
	for i := range charges {
		if charges[i].Critical {
			return true
		}
	}
	return false
}

// finish records the outcome of a call, and opens circuits. A shard has failed if any of its charges has.
func (t *transport) finish(now time.Time, elapsed time.Duration, charges []headgate.Charge, results []headgate.Result, shards []*shard) {
	for i, s := range shards {
		if slices.Contains(shards[:i], s) {
			continue
		}
		var err error
		var late, peeked bool // peeked: the store records nothing for this call
		var units int64
		for j := i; j < len(shards); j++ {
			if shards[j] != s || results[j].Err == nil {
				continue
			}
			err = results[j].Err
			if unanswered(err) {
				late = true
				units += charges[j].Cost
				peeked = peeked || neverFits(now, &charges[j])
			}
		}
		if !peeked {
			t.unanswered.Add(units)
		}
		s.calls.finish(now, elapsed, err == nil, late)
		if late && headgate.Weight(charges) > headgate.MaxWeight {
			continue // the request may be slow because it is heavy, and not the store
		}
		if s.record(now, err == nil) && s.trip(now) {
			t.opened.Add(1)
			t.unavailable.Add(1)
			t.log.Warn("store shard unavailable; circuit open, applying on_store_failure", "shard", s.number, "error", err)
			probe := charges[i] // a copy: the caller may reuse the slice
			t.background.run(func(ctx context.Context) { t.probe(ctx, s, probe) })
		}
	}
}

// neverFits reports whether no store can record the charge, and thus none of the charges in its call: callers add such a
// charge to peek.
func neverFits(now time.Time, c *headgate.Charge) bool {
	t, ok := c.Terms(now)
	return !ok || t.MinUnits > t.Capacity
}

// An open circuit is probed after minProbe, then at intervals that double up to maxProbe.
const (
	minProbe = 100 * time.Millisecond
	maxProbe = 400 * time.Millisecond
)

// probe peeks at the counter that failed until the shard answers and has been charged with the units admitted during the
// outage. Then it closes the circuit.
func (t *transport) probe(ctx context.Context, s *shard, failed headgate.Charge) {
	for pause := minProbe; ; pause = min(2*pause, maxProbe) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(pause)):
		}
		if t.responds(&failed) && t.recovering(ctx, s) { //nolint:contextcheck // a probe has its own deadline
			break
		}
	}
	open := s.reset(time.Now())
	t.unavailable.Add(-1)
	t.log.Info("store shard recovered; circuit closed, pending units charged",
		"shard", s.number, "duration", open.Round(time.Millisecond).String())
	t.recovered(ctx)
}

// responds reports whether the store answers for a counter. It charges nothing, but runs the same script as a charge.
func (t *transport) responds(c *headgate.Charge) bool {
	peek := headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit}
	return t.bounded.takeAsync(time.Now(), []headgate.Charge{peek}, make([]headgate.Result, 1)) == nil
}

// available reports whether the circuit of a subject's shard is closed.
func (t *transport) available(subject headgate.Subject) bool { return !t.shardOf(subject).open.Load() }

// shardOf returns the shard of a subject.
func (t *transport) shardOf(subject headgate.Subject) *shard {
	n := t.store.Shard(subject)
	found, ok := t.shards.Load(n)
	if !ok {
		found, _ = t.shards.LoadOrStore(n, newShard(n))
	}
	s, _ := found.(*shard)
	return s
}

// shardsOf returns the shard of each charge.
func (t *transport) shardsOf(charges []headgate.Charge, shards []*shard) []*shard {
	for i := range charges {
		if i > 0 && charges[i].Subject == charges[i-1].Subject {
			shards = append(shards, shards[i-1])
		} else {
			shards = append(shards, t.shardOf(charges[i].Subject))
		}
	}
	return shards
}
