package region

import (
	"context"
	"errors"

	"github.com/headgate/headgate"
)

// ErrNotHome means that this region is not the home of a subject: the region that sent the charge has other members or weights.
var ErrNotHome = errors.New("this region is not the home of the subject: regions.members must be the same in all regions")

// HomeStore decides charges of other regions on subjects whose home this region is, as the nodes of this region do.
type HomeStore struct {
	store  headgate.Store
	shares *Shares
}

// NewHomeStore returns a HomeStore. store is what the limiter of this node uses for charges of this region, such as a storewrap.Store, so
// that leases of this region are returned when units run out.
func NewHomeStore(store headgate.Store, shares *Shares) *HomeStore { return &HomeStore{store, shares} }

// Take decides charges. It changes them. While the store is unavailable, charges that need a decision fail, so that the region that sent
// them applies its own share of the limit. If it returns ErrNotHome, nothing is recorded.
func (h *HomeStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	for i := range charges {
		if h.shares.home(charges[i].Subject) != h.shares.own {
			return ErrNotHome
		}
		charges[i].Regions, charges[i].OnStoreFailure = headgate.HomeRegion, headgate.FailDeny
	}
	err := h.store.Take(ctx, charges, results)
	for i := range results {
		if results[i].Receipt.Local {
			results[i].Receipt = headgate.Receipt{} // of units that another node could not give back
		}
	}
	return err
}

// homeTarget is the home of subjects, as this node calls it.
type homeTarget struct {
	headgate.Store
	nodes func() (nodes, rank int)
}

// NewHomeTarget returns the store of another region for the wrapper of this node. nodes returns the number of nodes in this region and the
// rank of this node, which share what the region may admit while the other one is unavailable.
func NewHomeTarget(store headgate.Store, nodes func() (nodes, rank int)) headgate.Store {
	return &homeTarget{store, nodes}
}

// Take decides charges in the other region.
func (t *homeTarget) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	err := t.Store.Take(ctx, charges, results)
	nodes, rank := t.nodes()
	for i := range results {
		results[i].Nodes, results[i].Rank = int32(nodes), int32(rank)
	}
	return err
}
