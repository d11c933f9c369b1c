package region

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// Inner is the store of a region, such as a redisstore.Store.
type Inner interface {
	headgate.SlotStore
	headgate.Signer
	Publish(ctx context.Context, channel string, message []byte) error
	Subscribe(ctx context.Context, channels []string, receive func(channel string, message []byte)) error
}

// Store is a region's store that borrows units of shared limits from other regions, and lends them units. Close it before the inner store.
type Store struct {
	Inner
	borrower *borrower
	lender   *lender
	lost     lossFunc // nil if nothing is presumed
	stats    stats
}

var (
	_ headgate.SlotStore = (*Store)(nil)
	_ headgate.Signer    = (*Store)(nil)
)

// New wraps the store of a region. links reach the other regions, by their names.
func New(inner Inner, shares *Shares, links map[string]Link) *Store {
	s := &Store{Inner: inner}
	b := &borrower{
		store: inner, shares: shares, peers: make([]*peer, len(shares.members)), stats: &s.stats,
		start: time.Now(), slots: make(chan struct{}, maxBorrowing),
	}
	for name, link := range links {
		i := shares.index(name)
		b.peers[i] = newPeer(i, link)
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	s.borrower = b
	s.lender = &lender{store: inner, shares: shares, stats: &s.stats}
	return s
}

// Close waits for the loan requests in flight. It does not close the inner store.
func (s *Store) Close() { s.borrower.close() }

// Namespace returns a name of this region's counters, so that the token of a reservation is valid in this region only: others have not
// set its units aside.
func (s *Store) Namespace() string {
	shares := s.lender.shares
	return s.Inner.Namespace() + "\x00region " + shares.members[shares.own].Name
}

// Take charges the inner store. If a shared limit runs low, it borrows units in the background, for later charges.
func (s *Store) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	charges, err := s.current(ctx, charges)
	if err != nil {
		for i := range results {
			results[i] = headgate.Result{Err: err}
		}
		return err
	}
	charges = s.lost.presume(charges)
	err = s.Inner.Take(ctx, charges, results)
	for i := range results {
		if c := &charges[i]; c.Whole.Count > 0 {
			s.borrower.observe(c, &results[i])
		}
	}
	return err
}

// current returns the charges with the shares of now: weights may have changed since their limits were determined. It copies them only if
// they have. It returns an error if the shares are unknown, or none is left.
func (s *Store) current(ctx context.Context, charges []headgate.Charge) ([]headgate.Charge, error) {
	if !anyShared(charges) {
		return charges, nil
	}
	shares, copied := s.lender.shares, false
	if err := shares.fresh(ctx); err != nil || !shares.changed() {
		return charges, err
	}
	for i := range charges {
		c := &charges[i]
		if c.Whole.Count == 0 {
			continue
		}
		now := shares.Share(c.Subject, &c.Whole)
		if now == c.Limit {
			continue
		}
		if now.Count == 0 {
			return nil, fmt.Errorf("region: the region has lost its share of %s: %w", c.Whole, headgate.ErrUnavailable)
		}
		if !copied {
			charges, copied = slices.Clone(charges), true
		}
		charges[i].Limit = now
	}
	return charges, nil
}

// anyShared reports whether a charge is on a share.
func anyShared(charges []headgate.Charge) bool {
	for i := range charges {
		if charges[i].Whole.Count > 0 {
			return true
		}
	}
	return false
}

// Lend answers a loan request of another region.
func (s *Store) Lend(ctx context.Context, req LoanRequest) Loan {
	return s.lender.lend(ctx, &req, s.lost)
}

// Stats are what this node has borrowed and lent since it started.
type Stats struct {
	// Requests is how many loan requests were sent, Unanswered how many of them were not answered in time, and Skipped how often nothing was
	// requested because there were too many.
	Requests, Unanswered, Skipped int64
	// Borrowed and Lent are units. Lost are units that were lent but not credited, as far as this node knows.
	Borrowed, Lent, Lost int64
	// Charges that the store denied: DeniedWithSpare while another region may have had units left, because it said so when it last responded, or
	// has not responded in this window; DeniedUsedUp while none had, and DeniedUnknown if this node does not know. Denials that a node
	// has cached are not counted.
	DeniedWithSpare, DeniedUsedUp, DeniedUnknown int64
	// Rejected is how many loan requests of other regions this node rejected, by reason.
	Rejected map[string]int64
}

// Stats returns what this node has borrowed and lent.
func (s *Store) Stats() Stats {
	c := &s.stats
	all := Stats{
		Requests: c.requests.Load(), Unanswered: c.unanswered.Load(), Skipped: c.skipped.Load(),
		Borrowed: c.borrowed.Load(), Lent: c.lent.Load(), Lost: c.lost.Load(), Rejected: map[string]int64{},
		DeniedWithSpare: c.deniedWithSpare.Load(), DeniedUsedUp: c.deniedUsedUp.Load(), DeniedUnknown: c.deniedUnknown.Load(),
	}
	for r := NotRejected + 1; r < rejections; r++ {
		all.Rejected[r.String()] = c.rejected[r].Load()
	}
	return all
}

// stats are counted while units are borrowed and lent.
type stats struct {
	requests, unanswered, skipped atomic.Int64
	borrowed, lent, lost          atomic.Int64
	deniedWithSpare, deniedUsedUp atomic.Int64
	deniedUnknown                 atomic.Int64
	rejected                      [rejections]atomic.Int64
}
