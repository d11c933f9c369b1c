package storewrap

import (
	"sync/atomic"

	"github.com/headgate/headgate"
)

// fleet is what this node knows of the nodes that share the store, itself included. It keeps what the store last said: a store that
// has lost its data must not report fewer nodes than there are.
type fleet struct {
	least   int64 // configured
	members atomic.Pointer[members]
}

// members is how many nodes there are, and the rank of this one, from 1; 0 if the store never said. They belong together.
type members struct{ nodes, rank int64 }

func (f *fleet) init(least int) {
	f.least = int64(max(1, least))
	f.members.Store(&members{nodes: f.least})
}

// size returns how many nodes there are.
func (f *fleet) size() int64 { return f.members.Load().nodes }

// observe notes what the store said of the fleet, which it also does where it could not decide.
func (f *fleet) observe(results []headgate.Result) {
	for i := range results {
		r := &results[i]
		if r.Nodes <= 0 || r.Path != "" {
			continue
		}
		if m := (members{max(int64(r.Nodes), f.least), int64(max(0, r.Rank))}); m != *f.members.Load() {
			f.members.Store(&m)
		}
		return
	}
}
