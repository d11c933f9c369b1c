package main

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/llmcost"
)

// budget reserves the cost of calls. *headgate.Limiter and *client.Client implement it.
type budget interface {
	Reserve(ctx context.Context, req headgate.Request, hold time.Duration) (headgate.Reservation, error)
	Extend(ctx context.Context, token []byte, used, expected headgate.Request, hold time.Duration) (headgate.Reservation, error)
	Commit(ctx context.Context, token []byte, actual headgate.Request) (headgate.Decision, error)
	Cancel(ctx context.Context, token []byte) (headgate.Decision, error)
}

const (
	// callTimeout is the longest time that a call may take. Its reservation is held longer, so that it can always be corrected.
	callTimeout = 10 * time.Minute
	hold        = 15 * time.Minute
)

// call is one call of a model, and its reservation.
type call struct {
	*proxy
	tenant  string
	request *chatRequest
	meter   meter

	reservation headgate.Reservation
	// charged is whether the tenant pays for the call: the model has produced output, or the client has disconnected.
	charged bool
	// started is whether the client has got a part of the response.
	started bool
}

// costing returns the request to Headgate for this call. The cost is an attribute, which the rule "budget" reads; other rules count
// the call as one.
func (c *call) costing(cost int64) headgate.Request {
	return headgate.Request{Attributes: headgate.Attributes{
		"tenant": c.tenant, "descriptor.model": c.request.model, "descriptor.cost": strconv.FormatInt(max(1, cost), 10),
	}}
}

// reserve reserves the cost of the input and of the first output. If it returns false, it has written the response.
func (c *call) reserve(ctx context.Context, w http.ResponseWriter) bool {
	cost := c.meter.costWith(c.request.firstOutput())
	var err error
	c.reservation, err = c.budget.Reserve(ctx, c.costing(cost), hold)
	switch d := &c.reservation.Decision; {
	case err != nil:
		c.log.WarnContext(ctx, "budget unavailable; call denied", "tenant", c.tenant, "error", err)
		writeUnavailable(w)
	case !d.Allowed:
		writeDenied(w, d)
	case c.reservation.Covered < cost: // the rule's cost has a max
		c.settle(ctx)
		writeError(w, http.StatusBadRequest, apiError{
			Type: "invalid_request_error", Code: "call_too_expensive", Message: "the call may cost more than a call may cost: send less, or set a smaller max_tokens",
		})
	default:
		return true
	}
	return false
}

// cover reports whether the reservation covers the cost, and extends it if it does not. Nothing is reported as used before the end,
// because the count is an upper bound until the model reports its usage, and what was reported as used is not given back.
func (c *call) cover(ctx context.Context, cost int64) bool {
	if cost <= c.reservation.Covered {
		return true
	}
	ctx = context.WithoutCancel(ctx) // the token of the result must not get lost
	next, err := c.budget.Extend(ctx, c.reservation.Token, c.costing(0), c.costing(c.meter.costWith(firstOutput)), hold)
	if err != nil {
		c.log.WarnContext(ctx, "reservation not extended", "tenant", c.tenant, "error", err)
	}
	c.reservation = next
	return next.Decision.Allowed && cost <= next.Covered
}

// settle ends the reservation: it charges what the call has cost, or nothing.
func (c *call) settle(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // a client that disconnects pays, too
	var err error
	switch token := c.reservation.Token; {
	case token == nil: // no rule applies to the tenant
	case c.charged:
		_, err = c.budget.Commit(ctx, token, c.costing(c.meter.cost()))
	default:
		_, err = c.budget.Cancel(ctx, token)
	}
	if err != nil { // what was reserved stays charged
		c.log.WarnContext(ctx, "reservation not settled", "tenant", c.tenant, "error", err)
	}
}

// meter counts the tokens of a call. Until the model reports its usage, it counts bytes: an upper bound, because a token of a text
// has at least one byte. A client that disconnects before the usage arrives does not pay less.
type meter struct {
	price     llmcost.Price
	maxOutput int64 // largest number of output tokens that the model was asked for, or 0
	usage     llmcost.Usage
	since     int64 // bytes of output since the usage
}

// newMeter returns a meter for a request of so many bytes.
func newMeter(price llmcost.Price, request int, maxOutput int64) meter {
	return meter{price: price, maxOutput: maxOutput, usage: llmcost.Usage{Input: int64(request)}}
}

// cost returns what the call costs so far.
func (m *meter) cost() int64 { return m.costWith(0) }

// costWith returns what the call costs with so much more output.
func (m *meter) costWith(output int64) int64 {
	u := m.usage
	u.Output += m.since + output
	return m.price.Cost(u)
}

// report replaces the count by the usage that the model reports, unless that cannot be true: a usage without input or output, or with
// less output than before. A usage with more output than the model was asked for counts: the model has billed it.
func (m *meter) report(u llmcost.Usage) {
	produced := m.usage.Output + m.since
	if u.Input < 1 || u.Output < m.usage.Output || u.Output < 1 && produced > 0 {
		return
	}
	m.usage, m.since = u, 0
}
