package wan

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Counts are packets by what happened to them.
type Counts struct {
	// Sent packets were delivered, Lost at random, or dropped by a Cut. Duplicated ones were delivered twice.
	Sent, Lost, Cut, Duplicated int
}

func (c *Counts) add(other Counts) {
	c.Sent += other.Sent
	c.Lost += other.Lost
	c.Cut += other.Cut
	c.Duplicated += other.Duplicated
}

// link is the way from one region to another.
type link struct {
	mu                sync.Mutex
	random            *rand.Rand
	delay, jitter     time.Duration
	loss, duplication float64
	cut               bool
	counts            Counts
}

// newLink returns a link with its own random numbers, so that the traffic on other links does not change the fate of its packets.
func newLink(seed, number uint64, delay, jitter time.Duration) *link {
	return &link{random: rand.New(rand.NewPCG(seed, number)), delay: delay, jitter: jitter}
}

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// pass decides the fate of the next packet: it returns the delay of each copy to deliver. Each packet uses the same number of random
// numbers, whatever happens to it, so that settings change only the packets that they concern.
func (l *link) pass() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	loss, duplication := l.random.Float64(), l.random.Float64()
	delays := []time.Duration{l.delay + l.extra(), l.delay + l.extra()}
	l.counts.Sent++
	switch {
	case l.cut:
		l.counts.Cut++
		return nil
	case loss < l.loss:
		l.counts.Lost++
		return nil
	case duplication < l.duplication:
		l.counts.Duplicated++
		return delays
	}
	return delays[:1]
}

func (l *link) extra() time.Duration { return time.Duration(l.random.ExpFloat64() * float64(l.jitter)) }
