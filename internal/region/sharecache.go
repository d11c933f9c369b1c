package region

import (
	"sync/atomic"

	"github.com/headgate/headgate"
)

// shareCache remembers shares of limits: a server has few limits, and computing a share takes several times as long as finding it.
type shareCache [256]atomic.Pointer[cachedShare]

// cachedShare is this region's share of a limit for subjects of a class.
type cachedShare struct {
	class        uint64
	whole, share headgate.Limit
}

// get returns the share, which compute returns if it is not known.
func (c *shareCache) get(class uint64, whole *headgate.Limit, compute func(class uint64, whole *headgate.Limit) headgate.Limit) headgate.Limit {
	slot := &c[(uint64(whole.Count)*31+uint64(whole.Window)/1000+uint64(whole.Burst)*17+class)%uint64(len(c))]
	if known := slot.Load(); known != nil && known.class == class && known.whole == *whole {
		return known.share
	}
	share := compute(class, whole)
	slot.Store(&cachedShare{class, *whole, share})
	return share
}
