package streamlimit

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

const (
	attrMessage = "descriptor.message"
	attrBytes   = "descriptor.bytes"
	received    = "received"

	// pollUndecided is how often a delayed message is checked while the store is unavailable.
	pollUndecided = time.Second
)

// Gate decides the messages of one connection, one after the other. It is safe for concurrent use, and needs no closing. To have a delay
// slow the client down, use it in the goroutine that reads the connection.
type Gate struct {
	limits  *Limits
	resolve func(names ...string) headgate.Attributes
	turn    chan struct{} // has an element while a message is decided, which may use what follows
	// attributes are those of names, with the attributes of messages; countsBytes is whether names has descriptor.bytes.
	attributes  headgate.Attributes
	names       []string
	countsBytes bool
	unmatched   *headgate.RuleSet // rules of which none matches the connection's messages; nil if unknown

	state [1]headgate.State // of Options.Connection
	timer *time.Timer       // reused by waits of messages that are being decided
}

// Message decides a message of a size in bytes, negative if it is unknown. It blocks while the message is delayed, and returns early
// with Close if ctx ends.
func (g *Gate) Message(ctx context.Context, bytes int) Verdict {
	return g.MessageWithCost(ctx, bytes, 1)
}

// MessageWithCost decides a message as Message does. cost multiplies what the message costs: a batch of 500 may cost 500. A message of
// cost 0 or less passes uncounted.
func (g *Gate) MessageWithCost(ctx context.Context, bytes int, cost int64) Verdict {
	if cost <= 0 {
		return Verdict{}
	}
	patience := g.limits.options.MaxDelay
	if v := g.enter(ctx, &patience); v.Action != Pass {
		return v
	}
	queued, v := g.decide(ctx, bytes, cost, &patience)
	if queued != nil {
		return g.queue(ctx, queued)
	}
	return v
}

// enter waits until the messages that came before are decided. patience is how long the message may still be delayed.
func (g *Gate) enter(ctx context.Context, patience *time.Duration) Verdict {
	select {
	case g.turn <- struct{}{}:
		return Verdict{}
	default:
	}
	begin := time.Now()
	select {
	case g.turn <- struct{}{}: // in the order of arrival, so that the earlier ones have waited at most MaxDelay
		*patience -= time.Since(begin)
		return Verdict{}
	case <-ctx.Done():
		return ending
	}
}

// decide decides a message and has the next one enter. It returns the decision if the message is allowed but queued by leaky buckets.
func (g *Gate) decide(ctx context.Context, bytes int, cost int64, patience *time.Duration) (queued *headgate.Decision, v Verdict) {
	defer func() { <-g.turn }()
	if g.limits.charges != nil {
		if v = g.connection(ctx, cost, patience); v.Action != Pass {
			return nil, v
		}
	}
	if g.limits.checker == nil {
		return nil, v
	}
	return g.rules(ctx, bytes, cost, patience)
}

// connection decides a message by the limit of the connection.
func (g *Gate) connection(ctx context.Context, cost int64, patience *time.Duration) Verdict {
	charges, results := g.limits.charges, [1]headgate.Result{}
	if cost != 1 {
		charges = []headgate.Charge{charges[0]}
		charges[0].Cost = cost
	}
	for {
		result := &results[0]
		now := g.limits.clock.now()
		headgate.Decide(charges, g.state[:], results[:], now)
		if result.RetryAfter > 0 && g.state[0].Time >= now.Add(result.RetryAfter).UnixMicro() {
			// The last charge is later than the end of the window: the wall clock was set back. The window begins anew, as for a new
			// connection, which need not wait until the clock has caught up.
			g.state[0] = headgate.State{}
			headgate.Decide(charges, g.state[:], results[:], now)
		}
		if result.Allowed { // a leaky bucket has no delay here: delay waits
			return Verdict{}
		}
		if g.limits.options.OnExcess == Drop {
			return Verdict{Action: Drop, RetryAfter: result.RetryAfter}
		}
		if v := g.delay(ctx, result.RetryAfter, patience, false); v.Action == Pass {
			continue
		} else if v.Code == codeEnding {
			return v
		}
		v := Verdict{Action: Close, Code: codePolicy, Reason: "too many messages on this connection", RetryAfter: result.RetryAfter}
		if result.RetryAfter == headgate.Never {
			v.Reason = "message exceeds the limit of a connection"
		}
		return v
	}
}

// rules decides a message by the rules of the Checker.
func (g *Gate) rules(ctx context.Context, bytes int, cost int64, patience *time.Duration) (queued *headgate.Decision, v Verdict) {
	fixed := g.limits.fixedRules()
	if fixed != nil && fixed == g.unmatched {
		return nil, Verdict{}
	}
	for {
		g.describe(bytes)
		d, err := g.limits.checker.Check(ctx, headgate.Request{Attributes: g.attributes, Cost: cost})
		if err != nil || d.Path == headgate.PathFailed {
			limitfields.LogUndecided(ctx, g.limits.options.Log, &g.limits.failures, &d, err, "request_path", g.attributes["path"])
		}
		if d.Allowed {
			if fixed != nil && d.Path == headgate.PathNone && d.Version == fixed.Version() {
				g.unmatched = fixed
			}
			if d.Delay > 0 {
				delayed := d // only a queued message needs memory for it
				queued = &delayed
			}
			return queued, Verdict{}
		}
		v := g.deny(d)
		if v.Action == Drop {
			return nil, v
		}
		wait := v.RetryAfter
		if wait == 0 {
			wait = min(pollUndecided, *patience)
		}
		switch delayed := g.delay(ctx, wait, patience, true); {
		case delayed.Action == Pass:
		case delayed.Code == codeEnding:
			return nil, delayed
		default:
			return nil, v
		}
	}
}

// queue waits for the delay that leaky buckets impose on a message, which has its place in the queue.
func (g *Gate) queue(ctx context.Context, d *headgate.Decision) Verdict {
	if g.limits.options.Wait == nil {
		return wait(ctx, time.NewTimer(d.Delay))
	}
	switch err := g.limits.options.Wait(ctx, d); {
	case err != nil:
		return ending
	case !d.Allowed:
		return g.deny(*d)
	}
	return Verdict{}
}

// deny returns the verdict on a denied message that is not delayed.
func (g *Gate) deny(d headgate.Decision) Verdict {
	v := closing(&d, "too many messages", "message")
	if g.limits.options.OnExcess == Drop {
		return Verdict{Action: Drop, RetryAfter: v.RetryAfter, Decision: v.Decision}
	}
	return v
}

// describe sets the attributes of a message.
func (g *Gate) describe(bytes int) {
	if names := g.limits.checker.Attributes(); g.attributes == nil || !slices.Equal(names, g.names) {
		g.attributes, g.names = headgate.Attributes{}, names
		maps.Copy(g.attributes, g.resolve(names...))
		if g.attributes[attrMessage] == "" {
			g.attributes[attrMessage] = received
		}
		g.countsBytes = slices.Contains(names, attrBytes)
	}
	switch {
	case !g.countsBytes:
	case bytes >= 0:
		g.attributes[attrBytes] = strconv.Itoa(bytes)
	default:
		delete(g.attributes, attrBytes) // of the previous message
	}
}

// delay waits until a message in excess can be decided again. It returns Close if that takes longer than patience.
//
// With several connections of a client, which compete for the same units, yield must be set. A message then waits up to a 64th longer
// the less it has waited so far: the message that has waited longest is decided first, and no connection starves.
func (g *Gate) delay(ctx context.Context, span time.Duration, patience *time.Duration, yield bool) Verdict {
	if g.limits.options.OnExcess != Delay || span <= 0 || span > *patience {
		return Verdict{Action: Close}
	}
	if yield {
		span = min(span+time.Duration(float64(span)/64*float64(*patience)/float64(g.limits.options.MaxDelay)), *patience)
	}
	*patience -= span
	if g.timer == nil {
		g.timer = time.NewTimer(span)
	} else {
		g.timer.Reset(span)
	}
	return wait(ctx, g.timer)
}

// wait waits for a timer. It returns Close if ctx ends first.
func wait(ctx context.Context, timer *time.Timer) Verdict {
	select {
	case <-timer.C:
		return Verdict{}
	case <-ctx.Done():
		timer.Stop()
		return ending
	}
}
