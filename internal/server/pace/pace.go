// Package pace bounds how often this process does something, by the limiter's own arithmetic.
package pace

import (
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Pace is one limit and what is used of it. It is safe for use by many goroutines.
type Pace struct {
	limit headgate.Limit
	start time.Time
	mu    sync.Mutex
	state headgate.State
}

// New makes a pace of which nothing is used yet.
func New(limit headgate.Limit) *Pace { return &Pace{limit: limit, start: time.Now()} }

// Allow is whether it may be done once more, and counts that. It goes by the time since the start, which nobody sets back.
func (p *Pace) Allow(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var r headgate.Result
	p.state, r = p.limit.Take(p.state, headgate.Charge{Cost: 1}, p.start.Add(now.Sub(p.start)))
	return r.Allowed
}
