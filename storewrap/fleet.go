package storewrap

import (
	"sync/atomic"

	"github.com/headgate/headgate"
)

// fleet is what this node knows of the nodes that share the store, itself included.
type fleet struct {
	least int64 // configured
	nodes atomic.Int64
	rank  atomic.Int64 // of this node, from 1; 0 if the store never said
}

func (f *fleet) init(least int) {
	f.least = int64(max(1, least))
	f.nodes.Store(f.least)
}

// size returns how many nodes there are.
func (f *fleet) size() int64 { return f.nodes.Load() }

// observe notes what the store said of the fleet.
func (f *fleet) observe(results []headgate.Result) {
	for i := range results {
		r := &results[i]
		if r.Err != nil || r.Path != "" {
			continue
		}
		if n := max(int64(r.Nodes), f.least); n != f.nodes.Load() {
			f.nodes.Store(n)
		}
		if rank := int64(r.Rank); rank != f.rank.Load() {
			f.rank.Store(rank)
		}
		return
	}
}
