package region

import (
	"context"
	"fmt"
	"sync"

	"github.com/headgate/headgate"
)

// Local is the store of this region as a Router uses it, such as a storewrap.Store.
type Local interface {
	headgate.SlotStore
	headgate.Signer
}

// Router is the store of a limiter: it decides a charge with headgate.HomeRegion in the home of its subject, and all others in this region.
// Close it before the stores.
type Router struct {
	Local
	shares *Shares
	homes  []headgate.Store // by member; nil for this region
	undone sync.WaitGroup
}

var (
	_ headgate.SlotStore = (*Router)(nil)
	_ headgate.Signer    = (*Router)(nil)
)

// NewRouter returns a router. homes are the stores of the other regions, by their names; each must have its own deadline.
func NewRouter(local Local, shares *Shares, homes map[string]headgate.Store) *Router {
	r := &Router{Local: local, shares: shares, homes: make([]headgate.Store, len(shares.members))}
	for name, store := range homes {
		r.homes[shares.index(name)] = store
	}
	return r
}

// Close waits for the refunds in flight. It closes no store.
func (r *Router) Close() { r.undone.Wait() }

// Take grants all charges or none. If all of them have the same home, it decides them together. Otherwise it first decides those of
// this region, and the others only if those are granted; see decide.
func (r *Router) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	for i := range charges {
		if charges[i].Regions == headgate.HomeRegion && r.member(&charges[i]) != r.shares.own {
			return r.takeGroups(ctx, charges, results)
		}
	}
	return r.Local.Take(ctx, charges, results)
}

// member returns the region that decides a charge.
func (r *Router) member(c *headgate.Charge) int {
	if c.Regions != headgate.HomeRegion {
		return r.shares.own
	}
	return r.shares.home(c.Subject)
}

// store returns the store of a member.
func (r *Router) store(member int) headgate.Store {
	if member == r.shares.own {
		return r.Local
	}
	return r.homes[member]
}

// takeGroups decides charges that do not all belong to this region.
func (r *Router) takeGroups(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if len(results) != len(charges) {
		return fmt.Errorf("region: %d results for %d charges", len(results), len(charges))
	}
	groups := r.split(charges)
	if len(groups) == 1 {
		return r.store(groups[0].member).Take(ctx, charges, results)
	}
	denied := r.decide(ctx, groups)
	if denied > 0 {
		for _, g := range groups {
			if !g.denies() || denied > 1 { // otherwise its own store has recorded what must be
				r.undo(ctx, g)
			}
		}
	}
	var err error
	for _, g := range groups {
		if g.err != nil && err == nil {
			err = g.err
		}
		for i, at := range g.index {
			results[at] = g.results[i]
		}
	}
	return err
}

// split groups charges by the region that decides them, this region first.
func (r *Router) split(charges []headgate.Charge) []*group {
	of := make([]*group, len(r.homes))
	var groups []*group
	for i := range charges {
		member := r.member(&charges[i])
		g := of[member]
		if g == nil {
			g = &group{member: member}
			of[member] = g
			if groups = append(groups, g); member == r.shares.own {
				groups[0], groups[len(groups)-1] = g, groups[0]
			}
		}
		g.charges, g.index = append(g.charges, charges[i]), append(g.index, i)
	}
	for _, g := range groups {
		g.results = make([]headgate.Result, len(g.charges))
	}
	return groups
}

// decide decides the groups, and returns how many of them deny the request. This region comes first: if it denies the request, which takes no
// more time than without regions, nothing is sent to another one but what is always recorded. The other regions decide at the same time.
func (r *Router) decide(ctx context.Context, groups []*group) (denied int) {
	if groups[0].member == r.shares.own {
		r.take(ctx, groups[0])
		if groups[0].denies() || groups[0].failsClosed() {
			for _, g := range groups[1:] {
				g.skip()
			}
		}
	}
	var running sync.WaitGroup
	for i, g := range groups {
		switch {
		case g.member == r.shares.own: // decided
		case i < len(groups)-1:
			running.Go(func() { r.take(ctx, g) })
		default:
			r.take(ctx, g)
		}
	}
	running.Wait()
	for _, g := range groups {
		if g.denies() {
			denied++
		}
	}
	return denied
}

// take decides the charges of a group that are not skipped.
func (r *Router) take(ctx context.Context, g *group) {
	store := r.store(g.member)
	if g.skipped == 0 {
		g.err = store.Take(ctx, g.charges, g.results)
		return
	}
	if g.skipped == len(g.charges) {
		return
	}
	rest := group{}
	for i := range g.charges {
		if g.results[i].Path != headgate.PathNone {
			rest.charges, rest.index = append(rest.charges, g.charges[i]), append(rest.index, i)
		}
	}
	rest.results = make([]headgate.Result, len(rest.charges))
	g.err = store.Take(ctx, rest.charges, rest.results)
	for i, at := range rest.index {
		g.results[at] = rest.results[i]
	}
}

// undo gives back what a group was granted, and clears the grants of its results. No request waits for a refund in another region.
func (r *Router) undo(ctx context.Context, g *group) {
	refunds := g.refunds()
	if len(refunds) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	refund := func() {
		// If a refund fails, the units stay charged: the count errs on the safe side.
		_ = r.store(g.member).Take(ctx, refunds, make([]headgate.Result, len(refunds)))
	}
	if g.member == r.shares.own {
		refund()
	} else {
		r.undone.Go(refund)
	}
}

// group is the charges that one region decides.
type group struct {
	member  int
	charges []headgate.Charge
	results []headgate.Result
	index   []int // position of each charge in the request
	skipped int   // charges that are not decided; their Path is headgate.PathNone
	err     error
}

// denies reports whether an enforcing charge was denied.
func (g *group) denies() bool {
	for i := range g.charges {
		if r := &g.results[i]; r.Err == nil && !r.Allowed && r.Path != headgate.PathNone && g.charges[i].Enforces() {
			return true
		}
	}
	return false
}

// failsClosed reports whether the limiter will deny the request because a store is unavailable.
func (g *group) failsClosed() bool {
	for i := range g.charges {
		if c := &g.charges[i]; g.results[i].Err != nil && c.OnStoreFailure == headgate.FailDeny && c.Enforces() {
			return true
		}
	}
	return false
}

// skip marks the charges of a group that would not be recorded, because another region has denied the request. A request that is never
// recorded, to peek, is decided nevertheless.
func (g *group) skip() {
	for i := range g.charges {
		if c := &g.charges[i]; c.Cost > c.Limit.Capacity() && c.AtLeast == 0 && c.Enforces() {
			return
		}
	}
	for i := range g.charges {
		if !g.charges[i].Always() {
			g.results[i] = headgate.Result{Path: headgate.PathNone}
			g.skipped++
		}
	}
}

// refunds returns the charges that give back what the group was granted, and clears its grants.
func (g *group) refunds() (refunds []headgate.Charge) {
	undone := map[counterKey]int64{}
	for i := range g.charges {
		c, r := &g.charges[i], &g.results[i]
		undo, ok := c.Undo(r)
		if r.Err != nil {
			continue
		}
		key := counterKey{c.Subject, c.Counter}
		if ok {
			refunds = append(refunds, undo)
			undone[key] += r.Granted
			if c.Limit.Algorithm == headgate.Concurrency {
				r.HolderUnits -= r.Granted
			}
			r.Granted, r.Receipt = 0, headgate.Receipt{}
		}
		r.Remaining += undone[key]
	}
	return refunds
}
