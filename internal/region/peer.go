package region

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstRTT is the round trip that is assumed before the first response.
	firstRTT = 100 * time.Millisecond
	// No units are requested from a peer that did not respond for minPause, which doubles up to maxPause.
	minPause = 250 * time.Millisecond
	maxPause = 2 * time.Second
)

// peer is another region as the borrower knows it.
type peer struct {
	member int
	link   Link

	roundTrip atomic.Int64 // usually, in nanoseconds
	until     atomic.Int64 // nothing is requested before, on the borrower's clock
	mu        sync.Mutex
	pause     time.Duration
}

func newPeer(member int, link Link) *peer {
	p := &peer{member: member, link: link}
	p.roundTrip.Store(int64(firstRTT))
	return p
}

// available reports whether units may be requested from the peer.
func (p *peer) available(now time.Duration) bool { return int64(now) >= p.until.Load() }

// rtt returns the usual round trip.
func (p *peer) rtt() time.Duration { return time.Duration(p.roundTrip.Load()) }

// observe records how long a call took, or that it failed.
func (p *peer) observe(now, elapsed time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.pause = min(max(2*p.pause, minPause), maxPause)
		p.until.Store(int64(now + p.pause))
		return
	}
	p.pause = 0
	p.until.Store(0)
	p.roundTrip.Add(int64(elapsed-p.rtt()) / 4)
}
