package region

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// CounterRef identifies a counter of a shared limit to all regions.
type CounterRef struct {
	Subject headgate.Subject
	Counter headgate.Counter
	Whole   headgate.Limit
}

// Usage is the usage of a region's share of a limit.
type Usage struct {
	// Capacity is how many units the share has, and Remaining how many of them are left.
	Capacity, Remaining int64
	// Lent is how many of the used units the region has lent; of a bucket only those of the last second.
	Lent int64
	// Time is the time of the region's store.
	Time time.Time
}

// Used returns how many units of the share are used. The units that a region borrowed reduce it, and those that it lent are part of it, so that
// the sum over all regions is the usage of the whole limit.
func (u *Usage) Used() int64 { return u.Capacity - u.Remaining }

// Usage reads the counter of this region. It charges nothing. A region without a share has used nothing.
func (s *Store) Usage(ctx context.Context, ref CounterRef) (Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	c := s.chargeOf(&ref)
	if c.Limit.Count == 0 {
		return Usage{}, nil
	}
	c.Observe, c.Absent = true, s.lost.absent(&c)
	charges := []headgate.Charge{c}
	if lendable(&ref.Whole) {
		charges = append(charges, lentCharge(&c))
	}
	results := make([]headgate.Result, len(charges))
	if err := s.Inner.Take(ctx, charges, results); err != nil {
		return Usage{}, err
	}
	u := Usage{Capacity: c.Limit.Capacity(), Remaining: results[0].Remaining, Time: results[0].Time}
	if len(charges) > 1 {
		u.Lent = charges[1].Limit.Count - results[1].Remaining
	}
	return u, nil
}

// Credit gives back used units of this region's counter, and returns how many. headgate.MaxCost units give back all. The outer store, which
// wraps s, makes the nodes of this region return the units that they have leased.
//
// It is for operators, whose grants come on top of the limit. If the store does not answer, it may have given back the units.
func (s *Store) Credit(ctx context.Context, outer headgate.Store, ref CounterRef, units int64) (int64, error) {
	c := s.chargeOf(&ref)
	if c.Limit.Count == 0 {
		return 0, nil
	}
	c.Credit, c.Cost = true, units
	var results [1]headgate.Result
	if err := outer.Take(ctx, []headgate.Charge{c}, results[:]); err != nil {
		return 0, err
	}
	if units == headgate.MaxCost {
		s.ForgetLent(ctx, ref)
	}
	return results[0].Granted, nil
}

// ForgetLent sets the number of lent units of this region's counter to 0, after all its units were given back. Nothing depends on it but what
// operators see, so that a failure is ignored.
func (s *Store) ForgetLent(ctx context.Context, ref CounterRef) {
	c := s.chargeOf(&ref)
	if !lendable(&c.Limit) {
		return
	}
	lent := lentCharge(&c)
	lent.Observe, lent.Credit, lent.Cost = false, true, headgate.MaxCost
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_ = s.Inner.Take(ctx, []headgate.Charge{lent}, make([]headgate.Result, 1))
}

// chargeOf returns a peek on this region's counter.
func (s *Store) chargeOf(ref *CounterRef) headgate.Charge {
	shares := s.lender.shares
	return headgate.Charge{
		Subject: ref.Subject, Counter: ref.Counter, Limit: shares.Share(ref.Subject, &ref.Whole), Whole: ref.Whole,
	}
}

// ShareOf returns the share of a limit that a member has, by its name.
func (s *Shares) ShareOf(name string, subject headgate.Subject, whole *headgate.Limit) headgate.Limit {
	return s.shareOf(s.index(name), subject, whole)
}
