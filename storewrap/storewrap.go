// Package storewrap stands between a limiter and a store that can fail: nobody waits for the store longer than a deadline,
// and a part of it that fails is left alone until it answers again.
//
// It knows when a store fails. It does not know how to count, nor what a rule is: whoever asks decides what the store did
// not.
package storewrap

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

const defaultDeadline = 10 * time.Millisecond

// Options of a Store. The zero value is ready to use.
type Options struct {
	// Deadline is how long a decision waits for the store; 0 means 10 ms. An answer that comes later is lost: what it is
	// about may have been charged, and is not charged again.
	Deadline time.Duration
	// Log is told when a part of the store goes away and when it is back; nil means slog.Default().
	Log *slog.Logger
}

// Store is a store around another. It is safe for use by many goroutines.
type Store struct {
	inner  headgate.Store
	caller caller
	log    *slog.Logger

	mu    sync.Mutex // of whoever adds a part
	parts atomic.Pointer[map[int]*part]
	away  atomic.Int64 // parts that are
}

var _ headgate.Store = (*Store)(nil)

// New puts a store behind a deadline, and behind a breaker for each of its parts that can fail alone: those that
// Store.Part tells apart.
func New(store headgate.Store, o Options) *Store {
	if o.Deadline <= 0 {
		o.Deadline = defaultDeadline
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Store{inner: store, caller: caller{store: store, deadline: o.Deadline}, log: o.Log}
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
	if s.away.Load() > 0 {
		return s.takePresent(now, charges, results)
	}
	err := s.caller.take(now, charges, results)
	s.note(now, charges, results)
	return err
}

func tell(results []headgate.Result, err error) error {
	for i := range results {
		results[i] = headgate.Result{Err: err}
	}
	return err
}

// takePresent asks the store about charges on parts that are there, and has those that are away probed.
func (s *Store) takePresent(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	var asked []headgate.Charge
	var index []int
	for i := range charges {
		if p := s.part(charges[i].Subject); p.away.Load() {
			results[i] = headgate.Result{Err: errAway}
			s.probe(now, p, &charges[i])
			continue
		}
		asked = append(asked, charges[i])
		index = append(index, i)
	}
	if len(asked) == 0 {
		return errAway
	}
	said := make([]headgate.Result, len(asked))
	err := s.caller.take(now, asked, said)
	s.note(now, asked, said)
	for i, at := range index {
		results[at] = said[i]
	}
	if err == nil && len(asked) < len(charges) {
		err = errAway
	}
	return err
}

// note tells the breakers what became of a call, each once: a part has failed if it did for any of its charges.
func (s *Store) note(now time.Time, charges []headgate.Charge, results []headgate.Result) {
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
		s.log.Warn("the store does not answer: it is left alone, and rules decide by on_store_failure", "part", p.number,
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
