package regiongrpc

import (
	"context"
	"sync/atomic"
	"time"
)

// clock is the clock of this region's store, as this server last read it.
type clock struct{ offset atomic.Pointer[time.Duration] }

// measure reads the time of the store. If it is unavailable, the time is unknown.
func (c *clock) measure(ctx context.Context, storeTime func(context.Context) (time.Time, error)) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	before := time.Now()
	at, err := storeTime(ctx)
	if err != nil {
		c.offset.Store(nil)
		return
	}
	offset := at.Sub(before.Add(time.Since(before) / 2))
	c.offset.Store(&offset)
}

// now returns the time of the store.
func (c *clock) now() (time.Time, bool) { return c.at(time.Now()) }

// at returns the time of the store at a time of this server.
func (c *clock) at(local time.Time) (time.Time, bool) {
	offset := c.offset.Load()
	if offset == nil {
		return time.Time{}, false
	}
	return local.Add(*offset), true
}
