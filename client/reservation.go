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

// Peek returns the decision that Check would make, without charging anything.
func (c *Client) Peek(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return c.call(ctx, checkv1.CheckService_Peek_FullMethodName, appendRequest(nil, &req, ""), names{}.decision)
}

// Refund refunds the cost of a request, like headgate.Limiter.Refund. Servers accept refunds only if their config allows them. For
// errors see Commit.
func (c *Client) Refund(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return c.record(ctx, checkv1.CheckService_Refund_FullMethodName, appendRequest(nil, &req, ""))
}

// Reserve holds the maximum cost of a request, like headgate.Limiter.Reserve. If OnFailure allowed the request, the reservation has
// no token, and there is nothing to commit.
func (c *Client) Reserve(ctx context.Context, req headgate.Request, hold time.Duration) (headgate.Reservation, error) {
	message := appendPart(nil, 1<<3|protofields.Bytes, &req)
	message = protofields.AppendNumber(message, 2<<3, uint64(hold.Microseconds()))
	return c.reserve(ctx, checkv1.CheckService_Reserve_FullMethodName, message, nil)
}

// Extend continues a reservation, like headgate.Limiter.Extend. Any server can extend it, whichever made it. If no server responded, the
// result has the old token, OnFailure decides, and the server may have charged what was used: do not extend again.
func (c *Client) Extend(
	ctx context.Context, token []byte, used, expected headgate.Request, hold time.Duration,
) (headgate.Reservation, error) {
	message := protofields.AppendBytes(nil, 1<<3|protofields.Bytes, token)
	message = appendPart(message, 2<<3|protofields.Bytes, &used)
	message = appendPart(message, 3<<3|protofields.Bytes, &expected)
	message = protofields.AppendNumber(message, 4<<3, uint64(hold.Microseconds()))
	return c.reserve(ctx, checkv1.CheckService_Extend_FullMethodName, message, token)
}

// appendPart appends a request as a field of a message.
func appendPart(message []byte, tag protofields.Tag, req *headgate.Request) []byte {
	message, at := protofields.Open(message, tag)
	return protofields.Close(appendRequest(message, req, ""), at)
}

// reserve makes a call that returns a reservation. If no server decides, the reservation has the old token, and what OnFailure allows
// is covered without limit.
func (c *Client) reserve(ctx context.Context, method string, message, token []byte) (headgate.Reservation, error) {
	reservation, decided := headgate.Reservation{Token: token}, false
	d, err := c.call(ctx, method, message, func(data []byte) (d headgate.Decision, err error) {
		reservation, decided = headgate.Reservation{}, true
		r := protofields.Reader{Rest: data}
		for r.Next() && err == nil {
			switch r.Tag {
			case 1<<3 | protofields.Bytes:
				d, err = names{}.decision(r.Bytes)
			case 2<<3 | protofields.Bytes:
				reservation.Token = r.Bytes
			case 3 << 3:
				reservation.Covered = int64(r.Value)
			}
		}
		return d, cmp.Or(err, r.Err)
	})
	if reservation.Decision = d; !decided && d.Allowed {
		reservation.Covered = headgate.MaxCost
	}
	return reservation, err
}

// Commit ends a reservation and charges the actual cost of the request, like headgate.Limiter.Commit. Any server can commit,
// whichever made the reservation.
//
// Commit also returns an error if no server responded. If the error is headgate.ErrUnanswered, do not commit again: the charge may
// be recorded, and the held units are released automatically.
func (c *Client) Commit(ctx context.Context, token []byte, actual headgate.Request) (headgate.Decision, error) {
	message := protofields.AppendBytes(nil, 1<<3|protofields.Bytes, token)
	message = protofields.AppendNumber(message, 2<<3, uint64(actual.Cost))
	message = appendAttributes(message, 3<<3|protofields.Bytes, actual.Attributes)
	return c.record(ctx, checkv1.CheckService_Commit_FullMethodName, message)
}

// Cancel ends a reservation without a charge, like headgate.Limiter.Cancel. For errors see Commit.
func (c *Client) Cancel(ctx context.Context, token []byte) (headgate.Decision, error) {
	return c.record(ctx, checkv1.CheckService_Cancel_FullMethodName, protofields.AppendBytes(nil, 1<<3|protofields.Bytes, token))
}

// record makes a call that must be recorded by a server, so OnFailure cannot replace it: it never denies, and a missing response is
// an error.
func (c *Client) record(ctx context.Context, method string, message []byte) (headgate.Decision, error) {
	d, err := c.call(ctx, method, message, names{}.decision)
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Err != nil {
			d.Allowed, l.Allowed, err = true, true, l.Err
		}
	}
	return d, err
}

// call makes a unary call to one server, once, even if ctx is done.
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
	started := time.Now()
	var reply raw
	err = l.conn.Invoke(ctx, method, &raw{message}, &reply, grpc.ForceCodecV2(codec{}), grpc.StaticMethod())
	st := status.Convert(err)
	l.leave(started, ctx.Err() == nil && st.Code() != codes.DeadlineExceeded)
	if err == nil {
		return c.decoded(read(reply.data))
	}
	if st.Code() == codes.InvalidArgument && strings.HasPrefix(st.Message(), "reservation: ") {
		return headgate.Decision{}, fmt.Errorf("%w: %s", headgate.ErrInvalidToken, st.Message())
	}
	return c.failure(st.Code(), st.Message())
}

// enter keeps the link open until leave. It returns false if the link accepts no more calls.
func (l *link) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.retired {
		l.unary++
	}
	return !l.retired
}

// leave ends a call that began with enter. responded reports whether the server sent a response.
func (l *link) leave(started time.Time, responded bool) {
	l.mu.Lock()
	l.unary--
	if responded {
		l.timeouts = 0
	} else {
		l.addTimeout(started)
	}
	l.mu.Unlock()
	l.wakeSender()
}
