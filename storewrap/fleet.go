package storewrap

import (
	"sync/atomic"

	"github.com/headgate/headgate"
)

// fleet is what this node knows about the nodes that share the store, including itself. It keeps what the store last
// reported, even while the store is unavailable. A store that has lost its data must not report fewer nodes than there are.
type fleet struct {
	minNodes int64 // Options.Nodes
	regions  int64 // Options.Regions
	members  atomic.Pointer[members]
}

// members is the number of nodes, and the rank of this node, from 1; 0 if the store never reported it. They are updated
// together.
type members struct{ nodes, rank int64 }

func (f *fleet) init(minNodes, regions int) {
	f.minNodes, f.regions = int64(max(1, minNodes)), int64(max(1, regions))
	f.members.Store(&members{nodes: f.minNodes})
}

// size returns the number of nodes.
func (f *fleet) size() int64 { return f.members.Load().nodes }

// sharing returns the number of nodes that lease units of a charge's counter. Other regions are assumed to have as many nodes as this one.
func (f *fleet) sharing(c *headgate.Charge) int64 {
	if c.Regions == headgate.HomeRegion {
		return f.size() * f.regions
	}
	return f.size()
}

// observe records what the store reported about the fleet, which failed results may carry too.
func (f *fleet) observe(results []headgate.Result) {
	for i := range results {
		r := &results[i]
		if r.Nodes <= 0 || r.Path != "" {
			continue
		}
		if m := (members{max(int64(r.Nodes), f.minNodes), int64(max(0, r.Rank))}); m != *f.members.Load() {
			f.members.Store(&m)
		}
		return
	}
}
