package client

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/protofields"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// Peek says what Check would, without charging anything.
func (c *Client) Peek(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return c.call(ctx, checkv1.CheckService_Peek_FullMethodName, appendRequest(nil, &req, ""), names{}.decision)
}

// Refund gives back what a request costs, as headgate.Limiter.Refund does. Servers allow that only if their config
// does. The error is as that of Commit.
func (c *Client) Refund(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return c.record(ctx, checkv1.CheckService_Refund_FullMethodName, appendRequest(nil, &req, ""))
}

// Reserve holds what a request may cost, as headgate.Limiter.Reserve does. Where OnFailure lets the request pass
// there is no token, and nothing to commit.
func (c *Client) Reserve(ctx context.Context, req headgate.Request, hold time.Duration) (headgate.Reservation, error) {
	message, at := protofields.Open(nil, 1<<3|protofields.Bytes)
	message = protofields.Close(appendRequest(message, &req, ""), at)
	message = protofields.AppendNumber(message, 2<<3, uint64(hold.Microseconds()))
	var token []byte
	d, err := c.call(ctx, checkv1.CheckService_Reserve_FullMethodName, message, func(data []byte) (d headgate.Decision, err error) {
		r := protofields.Reader{Rest: data}
		for r.Next() && err == nil {
			switch r.Tag {
			case 1<<3 | protofields.Bytes:
				d, err = names{}.decision(r.Bytes)
			case 2<<3 | protofields.Bytes:
				token = r.Bytes
			}
		}
		return d, cmp.Or(err, r.Err)
	})
	return headgate.Reservation{Decision: d, Token: token}, err
}

// Commit ends a reservation and charges what the request did cost, as headgate.Limiter.Commit does. Any server can do
// that, whichever made the reservation.
//
// There is an error also if no server answered. If that is headgate.ErrUnanswered do not commit again: the charge may
// be recorded, and what was held comes back by itself.
func (c *Client) Commit(ctx context.Context, token []byte, actual headgate.Request) (headgate.Decision, error) {
	message := protofields.AppendBytes(nil, 1<<3|protofields.Bytes, token)
	message = protofields.AppendNumber(message, 2<<3, uint64(actual.Cost))
	message = appendAttributes(message, 3<<3|protofields.Bytes, actual.Attributes)
	return c.record(ctx, checkv1.CheckService_Commit_FullMethodName, message)
}

// Cancel ends a reservation and charges nothing, as headgate.Limiter.Cancel does. The error is as that of Commit.
func (c *Client) Cancel(ctx context.Context, token []byte) (headgate.Decision, error) {
	return c.record(ctx, checkv1.CheckService_Cancel_FullMethodName, protofields.AppendBytes(nil, 1<<3|protofields.Bytes, token))
}

// record is call for what has to be recorded, where no policy can stand in: it denies nothing, and not to have an
// answer is an error.
func (c *Client) record(ctx context.Context, method string, message []byte) (headgate.Decision, error) {
	d, err := c.call(ctx, method, message, names{}.decision)
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Err != nil {
			d.Allowed, l.Allowed, err = true, true, l.Err
		}
	}
	return d, err
}

// call asks one server beside the stream, once, also if ctx has ended.
func (c *Client) call(
	ctx context.Context, method string, message []byte, read func([]byte) (headgate.Decision, error),
) (headgate.Decision, error) {
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
	var answer raw
	err = l.conn.Invoke(ctx, method, &raw{message}, &answer, grpc.ForceCodecV2(codec{}), grpc.StaticMethod())
	st := status.Convert(err)
	l.leave(asked, ctx.Err() == nil && st.Code() != codes.DeadlineExceeded)
	if err == nil {
		return c.readable(read(answer.data))
	}
	if st.Code() == codes.InvalidArgument && strings.HasPrefix(st.Message(), "reservation: ") {
		return headgate.Decision{}, fmt.Errorf("%w: %s", headgate.ErrInvalidToken, st.Message())
	}
	return c.failure(st.Code(), st.Message())
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
		l.silent = 0
	} else {
		l.unheard(asked)
	}
	l.mu.Unlock()
	l.poke()
}
