package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// Take decides all charges in one script call where one server holds them and they weigh no more than headgate.MaxWeight. Else
// it makes several in parallel: in a Cluster one per slot, and of heavier ones more. If one of them denies, what the others
// recorded is refunded.
func (s *Store) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if len(results) != len(charges) {
		return fmt.Errorf("redisstore: %d results for %d charges", len(results), len(charges))
	}
	if len(charges) == 0 {
		return nil
	}
	if (!s.cluster || s.oneSlot(charges)) && headgate.Weight(charges) <= headgate.MaxWeight {
		g := group{charges: charges, results: results}
		s.decide(ctx, &g)
		if !errors.Is(g.err, errTryAgain) {
			return s.finish(&g)
		}
	}
	return s.takeGroups(ctx, charges, results)
}

// decide asks the store and works out the results. A group denied because a calendar window does not hold the store's
// time is asked again for the time just learned; twice, should a window end right then.
func (s *Store) decide(ctx context.Context, g *group) {
	var keyRoom [4]string
	var indexRoom [16]int
	keys, keyOf := s.keys(g.charges, keyRoom[:0], indexRoom[:0])
	client, err := s.client(ctx)
	if err != nil {
		g.err = err
		return
	}
	guess := s.wall().Add(time.Duration(s.ahead.Load()) * time.Microsecond)
	for range 3 {
		var msg rueidis.RedisMessage
		if msg, g.err = s.run(ctx, client, s.take, keys, encode(g.charges, keyOf, guess)...); g.err != nil {
			return
		}
		if g.reply, g.err = msg.AsBytes(); g.err != nil {
			break
		}
		r := reply{rest: g.reply}
		verdict := r.byte()
		g.time = r.time()
		if verdict != verdictBounds || r.broken {
			g.admitted, g.err = g.judge(false)
			if g.err == nil && g.admitted != (verdict == verdictAdmitted) {
				g.err = errReply
			}
			break
		}
		guess = g.time
		s.ahead.Store(guess.Sub(s.wall()).Microseconds())
		g.err = errClock
	}
	switch {
	case g.err == nil:
	case errors.Is(g.err, errClock):
		g.err = fmt.Errorf("%w: %w", headgate.ErrUnavailable, g.err)
	default: // an answer, but nobody knows which
		g.err = fmt.Errorf("%w: %w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, g.err)
	}
}

var errClock = errors.New("the store's clock is never where its last answer said it was")

// judge works out the results from the states that the script found, with the specification itself; withheld, as they
// are if the request was denied elsewhere.
func (g *group) judge(withheld bool) (admitted bool, err error) {
	var room [8]headgate.State
	states := append(room[:0], make([]headgate.State, len(g.charges))...)
	r := reply{rest: g.reply}
	r.bytes(replyHead)
	if err := r.states(g.charges, states); err != nil {
		return false, err
	}
	if withheld {
		headgate.DecideDenied(g.charges, states, g.results, g.time)
		return false, nil
	}
	return headgate.Decide(g.charges, states, g.results, g.time), nil
}

// keys are those of the charges' subjects, each once, and for each charge the index of its own.
func (s *Store) keys(charges []headgate.Charge, keys []string, keyOf []int) ([]string, []int) {
next:
	for i := range charges {
		for j := range i {
			if charges[j].Subject == charges[i].Subject {
				keyOf = append(keyOf, keyOf[j])
				continue next
			}
		}
		keyOf = append(keyOf, len(keys))
		keys = append(keys, s.Key(charges[i].Subject))
	}
	return keys, keyOf
}

// finish completes the results of a group: the error if there is one, and what is known of the nodes in any case.
func (s *Store) finish(g *group) error {
	members := s.members.Load()
	for i := range g.results {
		if g.err != nil {
			g.results[i] = headgate.Result{Err: g.err}
		}
		g.results[i].Nodes, g.results[i].Rank = int32(members.nodes), int32(members.rank)
	}
	if g.err != nil {
		return fmt.Errorf("redisstore: %w", g.err)
	}
	return nil
}

func (s *Store) oneSlot(charges []headgate.Charge) bool {
	first := charges[0].Subject
	for i := range charges {
		if charges[i].Subject != first && s.slot(charges[i].Subject) != s.slot(first) {
			return false
		}
	}
	return true
}

func (s *Store) slot(subject headgate.Subject) uint16 { return slotOf(s.Key(subject)) }

// takeGroups decides charges that take several calls.
func (s *Store) takeGroups(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	place := s.slot
	if !s.cluster {
		place = func(headgate.Subject) uint16 { return 0 }
	}
	groups := s.decideGroups(ctx, split(charges, place))
	denied := 0
	for _, g := range groups {
		if g.err == nil && !g.admitted {
			denied++
		}
	}
	if denied > 0 {
		s.undo(ctx, groups, denied)
	}
	var first error
	for _, g := range groups {
		if err := s.finish(g); err != nil && first == nil {
			first = err
		}
		for i, at := range g.index {
			results[at] = g.results[i]
		}
	}
	return first
}

// decideGroups decides all groups at once, those that are too heavy for one call in parts; where parts share a counter, after each
// other. A group whose slot is just being moved comes back as one group per subject.
func (s *Store) decideGroups(ctx context.Context, groups []*group) []*group {
	var chains [][]*group // of which each is decided in order
	for _, g := range groups {
		if parts := g.divide(); shareCounter(parts) {
			chains = append(chains, parts)
		} else {
			for i := range parts {
				chains = append(chains, parts[i:i+1])
			}
		}
	}
	var running sync.WaitGroup
	for i, chain := range chains {
		decide := func() {
			for _, g := range chain {
				s.decide(ctx, g)
			}
		}
		if i < len(chains)-1 {
			running.Go(decide)
		} else {
			decide()
		}
	}
	running.Wait()
	var done []*group
	for _, g := range slices.Concat(chains...) {
		if !errors.Is(g.err, errTryAgain) {
			done = append(done, g)
			continue
		}
		done = append(done, s.decideGroups(ctx, g.bySubject())...)
	}
	return done
}

// undo gives back what was recorded for a request that another group denied, and shows the results uncharged. An
// observing charge stays recorded only if its own group alone denied. It waits for the refunds as long as the caller does;
// they go on without it.
func (s *Store) undo(caller context.Context, groups []*group, denied int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), connTimeout)
	var running sync.WaitGroup
	for _, g := range groups {
		if g.err != nil || !g.admitted && denied == 1 {
			continue
		}
		if refund := g.refund(); len(refund.charges) > 0 {
			running.Go(func() { s.decide(ctx, refund) })
		}
		_, g.err = g.judge(true)
	}
	finished := make(chan struct{})
	s.done.Go(func() {
		running.Wait()
		cancel()
		close(finished)
	})
	select {
	case <-finished:
	case <-caller.Done():
	}
}
