package client

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// Peek says what Check would, without charging anything.
func (c *Client) Peek(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return c.call(ctx, func(ctx context.Context, calls checkv1.CheckServiceClient) (*checkv1.CheckResponse, error) {
		return calls.Peek(ctx, messageOf(&req))
	})
}

// Refund gives back what a request costs, as headgate.Limiter.Refund does. Servers allow that only if their config
// does. The error is as that of Commit.
func (c *Client) Refund(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return c.record(ctx, func(ctx context.Context, calls checkv1.CheckServiceClient) (*checkv1.CheckResponse, error) {
		return calls.Refund(ctx, messageOf(&req))
	})
}

// Reserve holds what a request may cost, as headgate.Limiter.Reserve does. Where OnFailure lets the request pass
// there is no token, and nothing to commit.
func (c *Client) Reserve(ctx context.Context, req headgate.Request, hold time.Duration) (headgate.Reservation, error) {
	message := &checkv1.ReserveRequest{Request: messageOf(&req), HoldUs: hold.Microseconds()}
	var token []byte
	d, err := c.call(ctx, func(ctx context.Context, calls checkv1.CheckServiceClient) (*checkv1.CheckResponse, error) {
		held, err := calls.Reserve(ctx, message)
		token = held.GetReservation()
		return held.GetDecision(), err
	})
	return headgate.Reservation{Decision: d, Token: token}, err
}

// Commit ends a reservation and charges what the request did cost, as headgate.Limiter.Commit does. Any server can do
// that, whichever made the reservation.
//
// There is an error also if no server answered. If that is headgate.ErrUnanswered do not commit again: the charge may
// be recorded, and what was held comes back by itself.
func (c *Client) Commit(ctx context.Context, token []byte, actual headgate.Request) (headgate.Decision, error) {
	request := messageOf(&actual)
	message := &checkv1.CommitRequest{Reservation: token, Cost: request.GetCost(), Attributes: request.GetAttributes()}
	return c.record(ctx, func(ctx context.Context, calls checkv1.CheckServiceClient) (*checkv1.CheckResponse, error) {
		return calls.Commit(ctx, message)
	})
}

// Cancel ends a reservation and charges nothing, as headgate.Limiter.Cancel does. The error is as that of Commit.
func (c *Client) Cancel(ctx context.Context, token []byte) (headgate.Decision, error) {
	return c.record(ctx, func(ctx context.Context, calls checkv1.CheckServiceClient) (*checkv1.CheckResponse, error) {
		return calls.Cancel(ctx, &checkv1.CancelRequest{Reservation: token})
	})
}

// question is a call besides the stream.
type question func(ctx context.Context, calls checkv1.CheckServiceClient) (*checkv1.CheckResponse, error)

// record is call for what has to be recorded, where no policy can stand in: it refuses nothing, and not to have an
// answer is an error.
func (c *Client) record(ctx context.Context, ask question) (headgate.Decision, error) {
	d, err := c.call(ctx, ask)
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Err != nil {
			d.Allowed, l.Allowed, err = true, true, l.Err
		}
	}
	return d, err
}

// call asks one server, once, also if ctx has ended.
func (c *Client) call(ctx context.Context, ask question) (headgate.Decision, error) {
	timer := time.NewTimer(c.options.Timeout)
	defer timer.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.options.Timeout)
	defer cancel()
	if parent := c.traceparent(ctx); parent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
	}
	l, err := c.pick(timer.C)
	for err == nil && !l.enter() {
		l, err = c.pick(timer.C)
	}
	if err != nil {
		return c.undecided(err), nil
	}
	asked := time.Now()
	m, err := ask(ctx, l.calls)
	st := status.Convert(err)
	l.leave(asked, ctx.Err() == nil && st.Code() != codes.DeadlineExceeded)
	if err == nil {
		return decisionOf(m)
	}
	if st.Code() == codes.InvalidArgument && strings.HasPrefix(st.Message(), "reservation: ") {
		return headgate.Decision{}, fmt.Errorf("%w: %s", headgate.ErrBadToken, st.Message())
	}
	return c.failure(st.Code(), st.Message())
}

// decisionOf goes by the wire, so that there is one way to read a decision.
func decisionOf(m *checkv1.CheckResponse) (headgate.Decision, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return headgate.Decision{}, fmt.Errorf("client: %w", err)
	}
	return names{}.decision(data)
}

// messageOf is a request as the generated code has it.
func messageOf(req *headgate.Request) *checkv1.CheckRequest {
	m := &checkv1.CheckRequest{Cost: req.Cost, Rule: text(req.Rule)}
	if len(req.Attributes) > 0 {
		m.Attributes = make(map[string]string, len(req.Attributes))
	}
	for name, value := range req.Attributes {
		name, value = sent(name, value)
		m.Attributes[text(name)] = text(value)
	}
	return m
}

// enter keeps the link until leave. It is false if the link takes no more.
func (l *link) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.retired {
		l.unary++
	}
	return !l.retired
}

func (l *link) leave(asked time.Time, answered bool) {
	l.mu.Lock()
	l.unary--
	if answered {
		l.silence.checks = 0
	} else {
		l.unheard(asked)
	}
	l.mu.Unlock()
	l.poke()
}
