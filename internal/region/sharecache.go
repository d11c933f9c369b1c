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

// slot returns where the share of a limit is, if it is known.
func (c *shareCache) slot(class uint64, whole *headgate.Limit) *atomic.Pointer[cachedShare] {
	return &c[(uint64(whole.Count)*31+uint64(whole.Window)/1024+uint64(whole.Burst)*17+class)%uint64(len(c))]
}
