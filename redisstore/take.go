package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// Take decides all charges in one script call if one server holds them and their weight is at most headgate.MaxWeight.
// Otherwise it makes several calls in parallel: in a Cluster one per slot, and more for heavier requests. If one of them
// denies, what the others recorded is refunded.
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

// decide calls the script and computes the results. If the store's time is not in the calendar window that was guessed, it
// calls the script again for the time just learned; at most twice, in case a window ends in between.
func (s *Store) decide(ctx context.Context, g *group) {
	var keyBuf [4]string
	var indexBuf [16]int
	keys, keyOf := s.keys(g.charges, keyBuf[:0], indexBuf[:0])
	client, err := s.client(ctx)
	if err != nil {
		g.err = err
		return
	}
	guess := s.now()
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
			g.admitted, g.err = g.evaluate(false)
			if g.err == nil && g.admitted != (verdict == verdictAdmitted) {
				g.err = errReply
			}
			break
		}
		guess = g.time
		s.clockOffset.Store(guess.Sub(s.wall()).Microseconds())
		g.err = errClock
	}
	switch {
	case g.err == nil:
	case errors.Is(g.err, errClock):
		g.err = fmt.Errorf("%w: %w", headgate.ErrUnavailable, g.err)
	default: // a reply that cannot be read: the charges may be recorded
		g.err = fmt.Errorf("%w: %w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, g.err)
	}
}

var errClock = errors.New("store clock jumped between three calls")

// evaluate computes the results from the states in the reply, with headgate.Decide. If denied is set, another group has
// denied the request.
func (g *group) evaluate(denied bool) (admitted bool, err error) {
	var stateBuf [8]headgate.State
	states := append(stateBuf[:0], make([]headgate.State, len(g.charges))...)
	r := reply{rest: g.reply}
	r.bytes(replyHead)
	if err := r.states(g.charges, states); err != nil {
		return false, err
	}
	if denied {
		headgate.DecideDenied(g.charges, states, g.results, g.time)
		return false, nil
	}
	return headgate.Decide(g.charges, states, g.results, g.time), nil
}

// keys returns the keys of the charges' subjects without duplicates, and for each charge the index of its key.
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

// finish completes the results of a group: with the error, if there is one, and always with what is known about the nodes.
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

// oneSlot reports whether all charges are in one slot of a Cluster.
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

// takeGroups decides charges that need several calls.
func (s *Store) takeGroups(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	partition := s.slot
	if !s.cluster {
		partition = func(headgate.Subject) uint16 { return 0 }
	}
	groups := s.decideGroups(ctx, split(charges, partition))
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

// decideGroups decides all groups in parallel. Groups that are too heavy for one call are divided; parts that share a counter
// are decided one after the other. A group whose slot is being moved is replaced by one group per subject.
func (s *Store) decideGroups(ctx context.Context, groups []*group) []*group {
	var chains [][]*group // each is decided in order
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

// undo refunds what was recorded for a request that another group denied, and clears the grants of its results. An observing
// charge stays recorded only if its own group is the only one that denied. undo waits for the refunds until caller ends; they
// complete in the background.
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
		_, g.err = g.evaluate(true)
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
