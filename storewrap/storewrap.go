// Package storewrap stands between a limiter and a store that is far away and can fail.
//
// It need not be asked about everything: a refusal is believed for a moment, and units of counters that are much asked for are
// taken in advance, to be spent here. And nobody waits for it longer than a deadline, a part of it that fails is left alone until
// it answers again, no more is asked of it than it can answer, and meanwhile this node goes on by its share of each limit. What it
// has admitted by itself is charged to the store afterwards.
//
// It knows what a node may decide by itself, and when it must. It does not know how to count, which it leaves to
// headgate.Decide, nor what a rule is: a charge says what should happen.
package storewrap

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// DefaultDeadline is below the 20 ms that Envoy waits for an answer if nobody has told it otherwise.
const DefaultDeadline = 10 * time.Millisecond

// Options of a Store. The zero value is ready to use.
type Options struct {
	// Deadline is how long a decision waits for the store; 0 means DefaultDeadline. An answer that comes later is lost: what it is
	// about may have been charged, and is not charged again.
	Deadline time.Duration
	// Nodes is the least number of nodes that share a limit while the store is away; 0 means 1. The store says how many
	// there were when it last answered, which counts if it is more.
	Nodes int
	// LocalShare is how many percent of its share a node admits while the store is away; 0 means 100.
	LocalShare int
	// Log is told when a part of the store goes away and when it is back; nil means slog.Default().
	Log *slog.Logger
	// Observe is told how long each call to the store took for which a decision waited; nil means nobody. It must not take long.
	Observe func(took time.Duration)
}

// Store is a store around another. It is safe for use by many goroutines.
type Store struct {
	inner   headgate.Store
	caller  caller
	log     *slog.Logger
	observe func(took time.Duration)

	// What this node decides by itself:
	ledger  ledger
	known   known
	start   time.Time
	salt    uint64
	percent int
	least   int64
	nodes   atomic.Int64

	mu    sync.Mutex // of whoever adds a part
	parts atomic.Pointer[map[int]*part]
	away  atomic.Int64 // parts that are

	unanswered, charged, beyond, shed, opened atomic.Int64
	errors                                    [kinds]atomic.Int64

	background background
}

var _ headgate.Store = (*Store)(nil)

// New puts a store behind a deadline, behind a breaker and a bound on calls for each of its parts that can fail alone, which
// are those that Store.Part tells apart, and before this node's share of each limit.
func New(store headgate.Store, o Options) *Store {
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Observe == nil {
		o.Observe = func(time.Duration) {}
	}
	if o.LocalShare <= 0 || o.LocalShare > 100 {
		o.LocalShare = 100
	}
	s := &Store{
		inner: store, caller: caller{store: store, deadline: o.Deadline}, log: o.Log, observe: o.Observe,
		ledger: ledger{most: maxTallies},
		start:  time.Now().Add(-time.Second),
		salt:   rand.Uint64(), percent: o.LocalShare, least: int64(max(1, o.Nodes)), //nolint:gosec // it tells nodes apart
	}
	s.nodes.Store(s.least)
	s.parts.Store(&map[int]*part{})
	s.background.start()
	return s
}

// Close charges the store with what still waits to be charged, if it answers, and ends what goes on in the background. The
// inner store is closed afterwards, by whoever opened it.
func (s *Store) Close() {
	if !s.background.end() {
		return
	}
	if s.ledger.waiting() > 0 {
		s.reconcile(s.background.ctx, s.present)
	}
	s.giveBackAll(s.background.ctx, s.known.ended(time.Since(s.start)+term))
}

// Part is the inner store's.
func (s *Store) Part(subject headgate.Subject) int { return s.inner.Part(subject) }

// Errors of charges that the store was not asked about.
var (
	errAway = fmt.Errorf("%w: it is left alone until it answers again", headgate.ErrUnavailable)
	errBusy = fmt.Errorf("%w: too many calls to it are under way", headgate.ErrUnavailable)
)

// Take asks the store, but for parts of it that are away or busy. It ends by its own deadline and not with ctx: a caller that
// is gone is no reason for a context of its own.
//
//nolint:contextcheck // as it says
func (s *Store) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if len(results) != len(charges) {
		return fmt.Errorf("storewrap: %d results for %d charges", len(results), len(charges))
	}
	if err := ctx.Err(); err != nil {
		return tell(results, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err))
	}
	var room [usual]step
	steps := room[:min(usual, len(charges))]
	if !plain(charges) {
		return s.askAll(time.Now(), charges, results, nil)
	}
	switch asks := s.here(time.Since(s.start), charges, results, steps); {
	case asks <= 0:
		return nil
	case asks == len(charges):
		return s.askAll(time.Now(), charges, results, steps)
	default:
		return s.askRest(time.Now(), charges, results, steps)
	}
}

// askAll asks the store about all charges, and for what is planned to be taken in advance.
func (s *Store) askAll(now time.Time, charges []headgate.Charge, results []headgate.Result, steps []step) error {
	asked := charges
	for i := range steps {
		if p := &steps[i]; p.ahead > 0 {
			if &asked[0] == &charges[0] {
				asked = slices.Clone(charges) // which are the caller's
			}
			asked[i].Cost, asked[i].AtLeast = charges[i].Cost+p.ahead, charges[i].Cost // more is no condition
		}
	}
	err := s.there(now, asked, results)
	if err != nil {
		s.countError(results)
		err = s.decide(now, charges, results)
	}
	for i := range charges {
		var ahead int64
		if steps != nil {
			ahead = steps[i].ahead
		}
		s.learn(&charges[i], &results[i], ahead, now.Sub(s.start))
	}
	s.sweepSoon()
	return err
}

// askRest asks the store about the charges that could not be decided here.
func (s *Store) askRest(now time.Time, charges []headgate.Charge, results []headgate.Result, steps []step) error {
	var asked []headgate.Charge
	var of []step
	for i := range charges {
		if steps[i].lease == nil {
			asked, of = append(asked, charges[i]), append(of, steps[i])
		}
	}
	said := make([]headgate.Result, len(asked))
	err := s.askAll(now, asked, said, of)
	denied, next := false, 0
	for i := range charges {
		if steps[i].lease == nil {
			results[i] = said[next]
			denied = denied || said[next].Err == nil && !said[next].Allowed && !charges[i].Observe
			next++
		}
	}
	if denied {
		for i := range steps {
			steps[i].ahead = 0
		}
		s.restore(charges, results, steps)
		s.sweepSoon()
		for i := range steps {
			if steps[i].lease != nil {
				results[i].Granted, results[i].Receipt = 0, headgate.Receipt{}
				results[i].Remaining += charges[i].Cost
			}
		}
	}
	return err
}

// there asks the store, but for parts of it that are away or busy. The error is that something may be left to decide.
func (s *Store) there(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	var room [8]*part
	parts := s.partsOf(charges, room[:0])
	if anyLocal(charges) || !s.enter(parts, charges) {
		s.takePresent(now, charges, results, parts)
		return errAway
	}
	err := s.call(now, charges, results)
	s.note(now, charges, results, parts)
	return err
}

// call asks the store.
func (s *Store) call(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	err := s.caller.take(now, charges, results)
	s.observe(time.Since(now))
	return err
}

// anyLocal is true if something is to be given back that this node has admitted by itself.
func anyLocal(charges []headgate.Charge) bool {
	for i := range charges {
		if charges[i].Refund.Local || charges[i].Release.Local {
			return true
		}
	}
	return false
}

func tell(results []headgate.Result, err error) error {
	for i := range results {
		results[i] = headgate.Result{Err: err}
	}
	return err
}

// takePresent asks the store about charges on parts that are there and not busy. What this node has admitted is given back
// here; what it has held is charged to the store, which knows nothing of the hold.
func (s *Store) takePresent(now time.Time, charges []headgate.Charge, results []headgate.Result, parts []*part) {
	important := critical(charges)
	var asked []headgate.Charge
	var of []*part
	var index []int
	for i, p := range parts {
		c := charges[i]
		if c.Refund.Local || c.Release.Local {
			s.giveBack(now, c, results[i:i+1])
			if c.Refund.Local || c.Cost == 0 {
				continue
			}
			c.Release, c.Force = headgate.Receipt{}, true
		}
		switch {
		case p.away.Load():
			results[i] = headgate.Result{Err: errAway}
			continue
		case !slices.Contains(of, p) && !p.enter(important):
			s.shed.Add(1)
			results[i] = headgate.Result{Err: errBusy}
			continue
		}
		asked, of, index = append(asked, c), append(of, p), append(index, i)
	}
	if len(asked) == 0 {
		return
	}
	said := make([]headgate.Result, len(asked))
	_ = s.call(now, asked, said) // each result has its own
	s.note(now, asked, said, of)
	for i, at := range index {
		results[at] = said[i]
	}
}

// enter is true if all parts are there and have room for one more call, which note ends.
func (s *Store) enter(parts []*part, charges []headgate.Charge) bool {
	important := critical(charges)
	for i, p := range parts {
		if slices.Contains(parts[:i], p) {
			continue
		}
		if !p.away.Load() && p.enter(important) {
			continue
		}
		for j, entered := range parts[:i] {
			if !slices.Contains(parts[:j], entered) {
				entered.leave()
			}
		}
		return false
	}
	return true
}

// critical is true of a request that is shed last.
func critical(charges []headgate.Charge) bool {
	for i := range charges {
		if charges[i].Critical {
			return true
		}
	}
	return false
}

// note tells the parts what became of a call, each once: a part has failed if it did for any of its charges. It also
// remembers what the store said, for when it says nothing.
func (s *Store) note(now time.Time, charges []headgate.Charge, results []headgate.Result, parts []*part) {
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			continue
		}
		if n := max(int64(r.Nodes), s.least); n != s.nodes.Load() {
			s.nodes.Store(n)
		}
	}
	for i, p := range parts {
		if slices.Contains(parts[:i], p) {
			continue
		}
		var err error
		var late, looked bool // looked: nothing would have been recorded
		var units int64
		for j := i; j < len(parts); j++ {
			if parts[j] != p || results[j].Err == nil {
				continue
			}
			err = results[j].Err
			if unanswered(err) {
				late = true
				units += charges[j].Cost
				looked = looked || neverFits(now, &charges[j])
			}
		}
		if !looked {
			s.unanswered.Add(units)
		}
		s.noteOne(now, p, &charges[i], err, late)
	}
}

// neverFits is true of a charge that no store records, nor any beside it: it is there so that the others are looked at.
func neverFits(now time.Time, c *headgate.Charge) bool {
	t, ok := c.Terms(now)
	return !ok || t.Least > t.Capacity
}

// noteOne ends a call to one part, which failed or was late.
func (s *Store) noteOne(now time.Time, p *part, c *headgate.Charge, err error, late bool) {
	p.ended(now, err == nil, late)
	if !p.note(now, err == nil) || !p.goAway(now) {
		return
	}
	s.away.Add(1)
	s.opened.Add(1)
	s.log.Warn("the store does not answer: it is left alone, and rules decide by their on_store_failure", "part", p.number,
		"error", err)
	failed := *c // its slice is the caller's
	s.background.run(func(ctx context.Context) { s.probe(ctx, p, &failed) })
}

// partsOf are those that hold the charges' subjects.
func (s *Store) partsOf(charges []headgate.Charge, parts []*part) []*part {
	known := *s.parts.Load()
	var last headgate.Subject
	for i := range charges {
		subject := charges[i].Subject
		if i > 0 && subject == last {
			parts = append(parts, parts[i-1])
			continue
		}
		last = subject
		n := s.inner.Part(subject)
		p := known[n]
		if p == nil {
			p = s.newPart(n)
		}
		parts = append(parts, p)
	}
	return parts
}

func (s *Store) newPart(n int) *part {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := *s.parts.Load()
	if p := known[n]; p != nil {
		return p
	}
	all := maps.Clone(known)
	all[n] = newPart(n)
	s.parts.Store(&all)
	return all[n]
}
