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

// Errors of charges that the store was not asked about.
var (
	errOpen = fmt.Errorf("%w: circuit open until it answers again", headgate.ErrUnavailable)
	errBusy = fmt.Errorf("%w: too many calls to it are under way", headgate.ErrUnavailable)
)

// unanswered reports whether a charge may have been recorded all the same.
func unanswered(err error) bool { return errors.Is(err, headgate.ErrUnanswered) }

// transport asks the store: up to a deadline, and only shards whose circuit is closed and that have room for a call.
type transport struct {
	store      headgate.Store
	deadline   time.Duration
	bounded    deadlineStore
	log        *slog.Logger
	observe    func(took time.Duration)
	background *background
	// recovering is called when a shard answers again, before requests go to it, and reports whether they may; recovered when
	// they do.
	recovering func(context.Context, *shard) bool
	recovered  func(context.Context)

	shards      sync.Map     // *shard by its number
	unavailable atomic.Int64 // shards

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

// take asks the store about charges on shards that are available. Each result has its own error; the error is one of them.
func (t *transport) take(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	var scratch [8]*shard
	shards := t.shardsOf(charges, scratch[:0])
	var err error
	if t.enterAll(shards, critical(charges)) {
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

// takePatiently asks the store for background work, which no request waits for. It does not end with ctx half-way.
func (t *transport) takePatiently(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return t.store.Take(ctx, charges, results)
}

// call asks shards that were entered, and ends the call to them.
func (t *transport) call(now time.Time, charges []headgate.Charge, results []headgate.Result, shards []*shard) error {
	err := t.bounded.take(now, charges, results)
	took := time.Since(now)
	t.observe(took)
	t.finish(now, took, charges, results, shards)
	return err
}

// takeAvailable asks about the charges on shards that are available and not busy.
func (t *transport) takeAvailable(charges []headgate.Charge, results []headgate.Result, shards []*shard) {
	important := critical(charges)
	var asked []headgate.Charge
	var of []*shard
	var index []int
	for i, s := range shards {
		switch {
		case s.open.Load():
			results[i] = headgate.Result{Err: errOpen}
			continue
		case !slices.Contains(of, s) && !t.enter(s, important):
			t.rejected.Add(1)
			results[i] = headgate.Result{Err: errBusy}
			continue
		}
		asked, of, index = append(asked, charges[i]), append(of, s), append(index, i)
	}
	if len(asked) == 0 {
		return
	}
	said := make([]headgate.Result, len(asked))
	// What was waited for until here is not the store. Each result has its own error.
	_ = t.call(time.Now(), asked, said, of)
	for i, at := range index {
		results[at] = said[i]
	}
}

// enter begins a call to a shard. It waits for its turn for half of the deadline, if that may come in time: that this node asks too much
// at once says nothing about the store.
func (t *transport) enter(s *shard, important bool) bool {
	if s.calls.enter(important) {
		return true
	}
	if !s.calls.await(important, t.deadline/2) {
		return false
	}
	if s.open.Load() { // by now
		s.calls.leave()
		return false
	}
	return true
}

// enterAll begins a call to all shards, if their circuits are closed and all have room for one.
func (t *transport) enterAll(shards []*shard, important bool) bool {
	for i, s := range shards {
		if slices.Contains(shards[:i], s) {
			continue
		}
		if !s.open.Load() && s.calls.enter(important) {
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

// critical reports whether a request is to be rejected last.
func critical(charges []headgate.Charge) bool {
	for i := range charges {
		if charges[i].Critical {
			return true
		}
	}
	return false
}

// finish ends a call. A shard has failed if any of its charges did.
func (t *transport) finish(now time.Time, took time.Duration, charges []headgate.Charge, results []headgate.Result, shards []*shard) {
	for i, s := range shards {
		if slices.Contains(shards[:i], s) {
			continue
		}
		var err error
		var late, peeked bool // peeked: nothing would have been recorded
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
		s.calls.ended(now, took, err == nil, late)
		if late && headgate.Weight(charges) > headgate.MaxWeight {
			continue // it may be the request that takes so long, and not the store
		}
		if s.record(now, err == nil) && s.trip(now) {
			t.opened.Add(1)
			t.unavailable.Add(1)
			t.log.Warn("store shard unavailable; circuit open, applying on_store_failure", "shard", s.number, "error", err)
			probe := charges[i] // the slice is the caller's
			t.background.run(func(ctx context.Context) { t.probe(ctx, s, probe) })
		}
	}
}

// neverFits reports whether no store records the charge, nor any beside it: it is there so that the others are only looked at.
func neverFits(now time.Time, c *headgate.Charge) bool {
	t, ok := c.Terms(now)
	return !ok || t.MinUnits > t.Capacity
}

// A shard whose circuit is open is probed after a while, later each time.
const (
	minProbe = 100 * time.Millisecond
	maxProbe = 400 * time.Millisecond
)

// probe asks an unavailable shard about the counter that failed, until it answers and has been charged with what was admitted
// meanwhile. Then it closes the circuit.
func (t *transport) probe(ctx context.Context, s *shard, failed headgate.Charge) {
	for pause := minProbe; ; pause = min(2*pause, maxProbe) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(pause)):
		}
		if t.answers(&failed) && t.recovering(ctx, s) { //nolint:contextcheck // a probe has a deadline of its own
			break
		}
	}
	open := s.reset(time.Now())
	t.unavailable.Add(-1)
	t.log.Info("store shard recovered; circuit closed", "shard", s.number, "open", open.Round(time.Millisecond).String())
	t.recovered(ctx)
}

// answers reports whether the store answers on a counter. It charges nothing, by the same script as every charge.
func (t *transport) answers(c *headgate.Charge) bool {
	peek := headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit}
	return t.bounded.takeAsync(time.Now(), []headgate.Charge{peek}, make([]headgate.Result, 1)) == nil
}

// available reports whether the circuit of a subject's shard is closed.
func (t *transport) available(subject headgate.Subject) bool { return !t.shardOf(subject).open.Load() }

func (t *transport) shardOf(subject headgate.Subject) *shard {
	n := t.store.Shard(subject)
	found, ok := t.shards.Load(n)
	if !ok {
		found, _ = t.shards.LoadOrStore(n, newShard(n))
	}
	s, _ := found.(*shard)
	return s
}

// shardsOf returns the shards that hold the charges' subjects.
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
