package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// eachCaller runs several clients concurrently, each with its own random source.
func eachCaller(c *Command, client func(caller int, random *rand.Rand)) {
	var all sync.WaitGroup
	for caller := range c.Bulk.Callers {
		all.Go(func() { client(caller, rand.New(rand.NewPCG(c.Bulk.Seed, uint64(caller)))) })
	}
	all.Wait()
}

// claims has several clients, each with its own subject, send random traffic and then request all of Remaining. The loops
// hardly sleep, on purpose: only busy counters are leased.
func (n *Worker) claims(c *Command) {
	eachCaller(c, func(caller int, random *rand.Rand) {
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
			last = n.checkAndRecord(&one)
			time.Sleep(pause)
		}
		if !last.Allowed || last.Remaining < 1 {
			return
		}
		claim := one
		claim.Cost, claim.Note = last.Remaining, judge.NoteClaim
		if random.IntN(4) > 0 {
			// Not the last claim on this subject: leave some units.
			one.Cost = 1 + random.Int64N(last.Remaining)
			last = n.checkAndRecord(&one)
			if claim.Cost = last.Remaining; !last.Allowed || claim.Cost < 1 {
				return
			}
		}
		last = n.checkAndRecord(&claim)
		requests = 1 + random.IntN(40)
	}
}

// early is how long before the end of its wait a client tries, late how long after it.
const early, late = time.Millisecond, 400 * time.Microsecond

// retries has clients, each with its own subject, send requests until they are denied, retry shortly before RetryAfter has
// passed, and then right after it.
func (n *Worker) retries(c *Command) {
	eachCaller(c, func(caller int, random *rand.Rand) {
		for trial := 0; time.Now().UnixMicro() < c.Bulk.Until; trial++ {
			group := c.Bulk.Groups[random.IntN(len(c.Bulk.Groups))]
			subject := fmt.Sprintf("%s%d/%d/%d", c.Subject, group, caller, trial)
			n.retry(Command{Op: judge.OpCheck, Group: group, Caller: caller, Cost: 1, Subject: subject}, random, c.Bulk.Until)
		}
	})
}

func (n *Worker) retry(one Command, random *rand.Rand, until int64) {
	maximum := n.capacity(one.Group)
	for range 20 {
		if time.Now().UnixMicro() >= until {
			return
		}
		one.Cost = 1
		if random.IntN(3) == 0 {
			one.Cost = 1 + random.Int64N(maximum)
		}
		r := n.checkAndRecord(&one)
		for range random.IntN(3) { // retry at once: no later denial may end earlier
			if r.Allowed {
				break
			}
			again := n.checkAndRecord(&one)
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
			r = n.checkAndRecord(&one)
		}
		if !r.Allowed {
			time.Sleep(time.Until(end.Add(late)))
			r = n.checkAndRecord(&one)
		}
	}
}

// capacity returns the largest cost of a request of a group.
func (n *Worker) capacity(group int) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	maximum := int64(1 << 40)
	for _, i := range n.groups[group] {
		maximum = min(maximum, n.spec.Limits[i].Capacity())
	}
	return maximum
}
