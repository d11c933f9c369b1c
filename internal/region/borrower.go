package region

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

const (
	// maxBorrowing is the maximum number of counters that are borrowed for at a time.
	maxBorrowing = 256
	// storeTimeout is how long the borrower waits for its own store, and lendTimeout for a peer. Units of a token bucket that are not
	// credited within headgate.MaxTransfer are lost.
	storeTimeout = time.Second
	lendTimeout  = time.Second
	// standInAfter is how long a counter must be low before another node than its borrower borrows.
	standInAfter = 600 * time.Millisecond
	// maxBackoff is the longest time for which nothing is borrowed after all peers had nothing to spare; or one part in restPart of the
	// rest of a fixed window, in which few units come back.
	maxBackoff = 4 * time.Second
	restPart   = 4
	// firstPart is the part of a fixed window, one in so many, for which nothing is borrowed the first time.
	firstPart = 30
)

// borrower borrows units of counters that run low from other regions.
type borrower struct {
	store    headgate.Store
	shares   *Shares
	peers    []*peer // by member; nil for this region
	stats    *stats
	accounts accounts
	start    time.Time
	slots    chan struct{} // has an element for each counter that is borrowed for

	ctx     context.Context //nolint:containedctx // it ends when the store is closed
	stop    context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

func (b *borrower) now() time.Duration { return time.Since(b.start) }

// observe updates the account of a shared charge's counter, and borrows units if it runs low. It does not block.
func (b *borrower) observe(c *headgate.Charge, r *headgate.Result) {
	if r.Err != nil || c.Refund.Units > 0 || c.Release.Units > 0 || c.Credit || !lendable(&c.Limit) {
		return
	}
	if r.Allowed && 4*r.Remaining > 3*c.Limit.Capacity() {
		return // most counters are hardly used
	}
	g := read(c, r)
	a := b.accounts.getOrCreate(c.Subject, c.Counter)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sample(&g, c.Cost)
	now := b.now()
	if g.denied && c.Cost > 0 && !c.Observe {
		a.others.count(b.stats, &g, now)
	}
	if a.borrowing || now < a.nextLoan {
		return
	}
	rtt := b.rtt(now)
	if !a.low(&g, rtt) {
		a.lowSince = 0
		return
	}
	first := max(2*rtt, g.fixed/firstPart)
	if !borrows(c, r) {
		first = max(maxBackoff, g.fixed/restPart)
		if a.lowSince == 0 {
			a.lowSince = now
		}
		if now < a.lowSince+standInAfter {
			return
		}
	}
	k := headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit, Whole: c.Whole, Absent: c.Absent, Observe: true}
	cost := max(c.Cost, 1)
	a.borrowing = b.begin(func(ctx context.Context) { b.borrow(ctx, a, k, cost, first) })
}

// borrows reports whether this node is the one that borrows units of a counter, so that one node knows of all loan requests in flight.
// Another node stands in if that one does not, for example because it gets no requests for this counter.
func borrows(c *headgate.Charge, r *headgate.Result) bool {
	return r.Rank <= 0 || r.Nodes <= 1 || int32(c.Subject[0])%r.Nodes == r.Rank-1
}

// rtt returns the round trip to the nearest peer that responds.
func (b *borrower) rtt(now time.Duration) time.Duration {
	nearest := time.Duration(0)
	for _, p := range b.peers {
		if p != nil && p.available(now) && (nearest == 0 || p.rtt() < nearest) {
			nearest = p.rtt()
		}
	}
	return max(nearest, time.Millisecond)
}

// begin runs f in the background, unless the store is closing or there are too many of them.
func (b *borrower) begin(f func(context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	select {
	case b.slots <- struct{}{}:
	default:
		b.stats.skipped.Add(1)
		return false
	}
	b.running.Go(func() {
		f(b.ctx)
		<-b.slots
	})
	return true
}

// close waits for the loan requests in flight.
func (b *borrower) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.stop()
	b.running.Wait()
}

// borrow requests units of counter k from peers, and determines when to do it again: after at least first if no peer has units to spare.
func (b *borrower) borrow(ctx context.Context, a *account, k headgate.Charge, cost int64, first time.Duration) {
	permit := permitCharge(&k)
	permit.Cost = 1
	pause := permit.Limit.Window
	g, ok := b.read(ctx, permit, k)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.borrowing = false
	if ok {
		g.denied = g.remaining < cost
		if parts, enough := b.divide(a, &k, &g, cost); len(parts) > 0 || enough {
			for _, part := range parts {
				b.running.Go(func() { b.request(ctx, a, k, &g, part) })
			}
		} else {
			a.backoff = min(max(2*a.backoff, first, pause), max(maxBackoff, min(g.fixed, g.rest)/restPart))
			pause = a.backoff
		}
	}
	a.nextLoan = b.now() + pause*3/4 + rand.N(pause/2+1) //nolint:gosec // jitter
}

// request requests units from one peer, and credits what it lends.
func (b *borrower) request(ctx context.Context, a *account, k headgate.Charge, g *reading, p part) {
	loan, err := b.send(ctx, p.peer, g.refill > 0, LoanRequest{
		From: b.shares.members[b.shares.own].Name, Epoch: b.shares.epoch,
		Subject: k.Subject, Counter: k.Counter, Whole: k.Whole, Window: g.start, Units: p.units,
	})
	if loan.Units < 0 || loan.Units > p.units { // no peer lends more than was requested
		loan = Loan{}
	}
	if err == nil && loan.Units > 0 {
		b.credit(ctx, k, g, loan.Units)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.window == g.start && a.lenders != nil {
		l := &a.lenders[p.peer.member]
		l.pending = 0
		if loan.Units > 0 {
			a.backoff = 0
		}
		if err == nil {
			l.spare, l.at = max(0, loan.Left), b.now()
			a.others.update(a.lenders, b.shares.own, l.at)
		}
	}
}

// read takes the permit to borrow, and reads the counter. It returns false if another node of this region has it, or the store does not
// answer.
func (b *borrower) read(ctx context.Context, permit, k headgate.Charge) (g reading, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var results [2]headgate.Result
	if b.store.Take(ctx, []headgate.Charge{permit, k}, results[:]) != nil || !results[0].Allowed {
		return g, false
	}
	return read(&k, &results[1]), true
}

// part is what is requested from one peer.
type part struct {
	peer  *peer
	units int64
}

// divide divides the wanted units among the peers that may lend them, beginning with the one that has the most. enough is true if no units
// are wanted, or other requests are in flight. The caller holds the account's lock.
func (b *borrower) divide(a *account, k *headgate.Charge, g *reading, cost int64) (parts []part, enough bool) {
	now := b.now()
	if a.lenders == nil || a.window != g.start {
		a.window, a.lenders = g.start, make([]lenderAccount, len(b.peers))
		for i := range b.peers {
			share := b.shares.shareOf(i, k.Subject, &k.Whole)
			a.lenders[i] = lenderAccount{spare: share.Capacity(), at: now}
		}
		a.others.begin(g.start, now)
	}
	units := a.want(g, cost, b.rtt(now))
	if units <= 0 {
		return nil, true
	}
	for i, p := range b.peers {
		if p == nil || a.lenders[i].pending > 0 {
			enough = enough || p != nil
			continue
		}
		if spare := a.lenders[i].expected(k, now, p.rtt()); spare > 0 && p.available(now) {
			parts = append(parts, part{p, spare})
		}
	}
	slices.SortFunc(parts, func(x, y part) int {
		return cmp.Or(cmp.Compare(y.units, x.units), cmp.Compare(x.peer.rtt(), y.peer.rtt()))
	})
	for i := range parts {
		parts[i].units = min(parts[i].units, units)
		a.lenders[parts[i].peer.member].pending = parts[i].units
		if units -= parts[i].units; units == 0 {
			return parts[:i+1], true
		}
	}
	if len(parts) == 0 && !enough {
		a.lenders = nil // after the pause all peers may have some again
	}
	return parts, enough
}

// send sends a loan request, once.
func (b *borrower) send(ctx context.Context, p *peer, bucket bool, req LoanRequest) (Loan, error) {
	timeout := lendTimeout
	if bucket {
		timeout = headgate.MaxTransfer
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	b.stats.requests.Add(1)
	sent := b.now()
	loan, err := p.link.Lend(ctx, req)
	now := b.now()
	p.observe(now, now-sent, err)
	if err != nil {
		b.stats.unanswered.Add(1)
	}
	return loan, err
}

// credit gives the counter units that were lent, once. The store rejects them if they are late.
func (b *borrower) credit(ctx context.Context, k headgate.Charge, g *reading, units int64) {
	k.Observe, k.Credit, k.Cost, k.Within = false, true, units, g.start
	if g.refill > 0 {
		k.Within = g.at + headgate.MaxTransfer.Microseconds()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	var results [1]headgate.Result
	if b.store.Take(ctx, []headgate.Charge{k}, results[:]) != nil {
		b.stats.lost.Add(units)
		return
	}
	granted := results[0].Granted
	b.stats.borrowed.Add(granted)
	b.stats.lost.Add(units - granted)
}
