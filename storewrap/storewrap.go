// Package storewrap stands between a limiter and a store that can fail: nobody waits for the store longer than a deadline,
// a part of it that fails is left alone until it answers again, and meanwhile this node goes on by its share of each limit.
//
// It knows when a store fails, and what a node may admit by itself. It does not know how to count, which it leaves to
// package memstore, nor what a rule is: a charge says what should happen.
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
	"github.com/headgate/headgate/memstore"
)

const defaultDeadline = 10 * time.Millisecond

// Options of a Store. The zero value is ready to use.
type Options struct {
	// Deadline is how long a decision waits for the store; 0 means 10 ms. An answer that comes later is lost: what it is
	// about may have been charged, and is not charged again.
	Deadline time.Duration
	// Nodes is the least number of nodes that share a limit while the store is away; 0 means 1. The store says how many
	// there were when it last answered, which counts if it is more.
	Nodes int
	// LocalShare is how many percent of its share a node admits while the store is away; 0 means 100.
	LocalShare int
	// Log is told when a part of the store goes away and when it is back; nil means slog.Default().
	Log *slog.Logger
}

// Store is a store around another. It is safe for use by many goroutines.
type Store struct {
	inner  headgate.Store
	caller caller
	log    *slog.Logger

	// While the store is away:
	local   *memstore.Store
	known   memory
	start   time.Time
	salt    uint64
	percent int
	least   int64
	nodes   atomic.Int64

	mu    sync.Mutex // of whoever adds a part
	parts atomic.Pointer[map[int]*part]
	away  atomic.Int64 // parts that are
}

var _ headgate.Store = (*Store)(nil)

// New puts a store behind a deadline, behind a breaker for each of its parts that can fail alone, which are those that
// Store.Part tells apart, and before this node's share of each limit.
func New(store headgate.Store, o Options) *Store {
	if o.Deadline <= 0 {
		o.Deadline = defaultDeadline
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.LocalShare <= 0 || o.LocalShare > 100 {
		o.LocalShare = 100
	}
	s := &Store{
		inner: store, caller: caller{store: store, deadline: o.Deadline}, log: o.Log,
		local: memstore.New(memstore.Options{MaxEntries: maxLocal}), start: time.Now().Add(-time.Second),
		salt: rand.Uint64(), percent: o.LocalShare, least: int64(max(1, o.Nodes)), //nolint:gosec // it tells nodes apart
	}
	s.nodes.Store(s.least)
	s.parts.Store(&map[int]*part{})
	return s
}

// Part is the inner store's.
func (s *Store) Part(subject headgate.Subject) int { return s.inner.Part(subject) }

// Away is how many parts of the store are left alone now, because they do not answer.
func (s *Store) Away() int { return int(s.away.Load()) }

// errAway is of charges that the store was not asked about.
var errAway = fmt.Errorf("%w: it is left alone until it answers again", headgate.ErrUnavailable)

// Take asks the store, but for parts of it that are away. It ends by its own deadline and not with ctx: a caller that is gone
// is no reason for a context of its own.
//
//nolint:contextcheck // as it says
func (s *Store) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if len(results) != len(charges) {
		return fmt.Errorf("storewrap: %d results for %d charges", len(results), len(charges))
	}
	if err := ctx.Err(); err != nil {
		return tell(results, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err))
	}
	now := time.Now()
	if s.away.Load() > 0 || anyLocal(charges) {
		s.takePresent(now, charges, results)
		return s.decide(now, charges, results)
	}
	err := s.caller.take(now, charges, results)
	s.note(now, charges, results)
	if err != nil {
		return s.decide(now, charges, results)
	}
	return nil
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

// takePresent asks the store about charges on parts that are there, and has those that are away probed. What this node has
// admitted is given back here; what it has held is charged to the store, which knows nothing of the hold.
func (s *Store) takePresent(now time.Time, charges []headgate.Charge, results []headgate.Result) {
	var asked []headgate.Charge
	var index []int
	for i := range charges {
		c := charges[i]
		if c.Refund.Local || c.Release.Local {
			s.giveBack(now, c, results[i:i+1])
			if c.Refund.Local || c.Cost == 0 {
				continue
			}
			c.Release, c.Force = headgate.Receipt{}, true
		}
		if p := s.part(charges[i].Subject); p.away.Load() {
			results[i] = headgate.Result{Err: errAway}
			s.probe(now, p, &charges[i])
			continue
		}
		asked = append(asked, c)
		index = append(index, i)
	}
	if len(asked) == 0 {
		return
	}
	said := make([]headgate.Result, len(asked))
	_ = s.caller.take(now, asked, said) // each result has its own
	s.note(now, asked, said)
	for i, at := range index {
		results[at] = said[i]
	}
}

// note tells the breakers what became of a call, each once: a part has failed if it did for any of its charges. It also
// remembers what the store said, for when it says nothing.
func (s *Store) note(now time.Time, charges []headgate.Charge, results []headgate.Result) {
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			continue
		}
		if !charges[i].Observe && charges[i].OnStoreFailure == headgate.FailLocal {
			s.known.put(&charges[i], r, now.Sub(s.start))
		}
		if n := max(int64(r.Nodes), s.least); n != s.nodes.Load() {
			s.nodes.Store(n)
		}
	}
	var room [4]*part
	seen := room[:0]
	for i := range charges {
		p := s.part(charges[i].Subject)
		if slices.Contains(seen, p) {
			continue
		}
		seen = append(seen, p)
		err := results[i].Err
		for j := i + 1; err == nil && j < len(charges); j++ {
			if results[j].Err != nil && s.part(charges[j].Subject) == p {
				err = results[j].Err
			}
		}
		s.noteOne(now, p, err)
	}
}

func (s *Store) noteOne(now time.Time, p *part, err error) {
	if p.note(now, err == nil) && p.leave(now) {
		s.away.Add(1)
		s.log.Warn("the store does not answer: it is left alone, and rules decide by their on_store_failure", "part", p.number,
			"error", err)
	}
}

// part is the one that holds a subject.
func (s *Store) part(subject headgate.Subject) *part {
	n := s.inner.Part(subject)
	if p := (*s.parts.Load())[n]; p != nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := *s.parts.Load()
	if p := known[n]; p != nil {
		return p
	}
	all := maps.Clone(known)
	all[n] = &part{number: n}
	s.parts.Store(&all)
	return all[n]
}

// probe asks a part that is away whether it answers, if it is time to: one question at a time, which charges nothing, by the
// same script as every charge and on a counter that somebody wants to know about.
func (s *Store) probe(now time.Time, p *part, c *headgate.Charge) {
	if !p.mayProbe(now) {
		return
	}
	question := []headgate.Charge{{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit}}
	go func() {
		err := s.caller.takeAside(time.Now(), question, make([]headgate.Result, 1))
		now := time.Now()
		if err != nil {
			p.probed(now)
			return
		}
		gone := p.back(now)
		s.away.Add(-1)
		s.log.Info("the store answers again", "part", p.number, "away", gone.Round(time.Millisecond).String())
	}()
}
