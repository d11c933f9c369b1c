package storewrap

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/headgate/headgate"
)

// askedUnits is how many units this node has asked the store for and not heard of, by counter. Counters that share a place count
// for each other, which is on the safe side: it bounds what the node may admit on its own meanwhile.
type askedUnits [4_096]atomic.Int64

func (u *askedUnits) of(c *headgate.Charge) *atomic.Int64 {
	return &u[(binary.LittleEndian.Uint64(c.Subject[:])^uint64(c.Counter))%uint64(len(u))]
}

// add counts charges that the store is asked about; with a sign of -1, that it is no longer.
func (u *askedUnits) add(charges []headgate.Charge, sign int64) {
	for i := range charges {
		if c := &charges[i]; c.Cost > 0 && ordinary(c) {
			u.of(c).Add(sign * min(c.Cost, headgate.MaxCost))
		}
	}
}
