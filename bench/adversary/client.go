package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// callers runs several clients side by side, each with a source of its own.
func (n *Worker) callers(c *Command, client func(caller int, random *rand.Rand)) {
	var all sync.WaitGroup
	for caller := range c.Bulk.Callers {
		all.Go(func() { client(caller, rand.New(rand.NewPCG(c.Bulk.Seed, uint64(caller)))) })
	}
	all.Wait()
}

// claims lets several clients, each on a subject of its own, send random traffic and then ask for all that
// Remaining says. The loops are short of sleep on purpose: only a counter that is much asked for is leased.
func (n *Worker) claims(c *Command) {
	n.callers(c, func(caller int, random *rand.Rand) {
		for trial := caller; trial < c.Bulk.Trials; trial += c.Bulk.Callers {
			group := c.Bulk.Groups[trial%len(c.Bulk.Groups)]
			subject := fmt.Sprintf("%s%d/%d", c.Subject, group, trial)
			n.claim(Command{Op: judge.OpCheck, Group: group, Caller: caller, Cost: 1, Subject: subject}, random)
		}
	})
}

func (n *Worker) claim(one Command, random *rand.Rand) {
	pause := time.Duration(0)
	if random.IntN(3) == 0 {
		pause = time.Duration(random.IntN(2000)) * time.Microsecond
	}
	requests := 1 + random.IntN(200)
	for range 4 {
		var last judge.Record
		for range requests {
			one.Cost = 1 + random.Int64N(2)*random.Int64N(4)
			last = n.ask(&one)
			time.Sleep(pause)
		}
		if !last.Allowed || last.Remaining < 1 {
			return
		}
		claim := one
		claim.Cost, claim.Note = last.Remaining, judge.NoteClaim
		if random.IntN(4) > 0 {
			// Not the last claim on this subject: leave some to ask for.
			one.Cost = 1 + random.Int64N(last.Remaining)
			last = n.ask(&one)
			if claim.Cost = last.Remaining; !last.Allowed || claim.Cost < 1 {
				return
			}
		}
		last = n.ask(&claim)
		requests = 1 + random.IntN(40)
	}
}

// early is how long before the end of its wait a client tries, and late how long after it.
const early, late = time.Millisecond, 400 * time.Microsecond

// retries lets clients, each on a subject of its own, ask until they are denied, try again shortly before their
// RetryAfter, and then right after it.
func (n *Worker) retries(c *Command) {
	n.callers(c, func(caller int, random *rand.Rand) {
		for trial := 0; time.Now().UnixMicro() < c.Bulk.Until; trial++ {
			group := c.Bulk.Groups[random.IntN(len(c.Bulk.Groups))]
			subject := fmt.Sprintf("%s%d/%d/%d", c.Subject, group, caller, trial)
			n.retry(Command{Op: judge.OpCheck, Group: group, Caller: caller, Cost: 1, Subject: subject}, random, c.Bulk.Until)
		}
	})
}

func (n *Worker) retry(one Command, random *rand.Rand, until int64) {
	most := n.capacity(one.Group)
	for range 20 {
		if time.Now().UnixMicro() >= until {
			return
		}
		one.Cost = 1
		if random.IntN(3) == 0 {
			one.Cost = 1 + random.Int64N(most)
		}
		r := n.ask(&one)
		for range random.IntN(3) { // ask again at once: no later denial may end earlier
			if r.Allowed {
				break
			}
			again := n.ask(&one)
			if again.Allowed {
				r = again
			}
		}
		if r.Allowed || r.RetryAfter < 0 {
			continue
		}
		_, decided := r.Span()
		end := time.UnixMicro(decided + r.RetryAfter)
		if time.Until(end) > 2*early {
			time.Sleep(time.Until(end.Add(-early)))
			r = n.ask(&one)
		}
		if !r.Allowed {
			time.Sleep(time.Until(end.Add(late)))
			r = n.ask(&one)
		}
	}
}

// capacity returns the most that a request of a group may cost.
func (n *Worker) capacity(group int) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	most := int64(1 << 40)
	for _, i := range n.groups[group] {
		most = min(most, n.spec.Limits[i].Capacity())
	}
	return most
}
