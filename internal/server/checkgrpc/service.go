package checkgrpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelog"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/tracing"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	// maxInFlight is the maximum number of checks of one stream in flight, and of one batch if that is fewer than
	// check.BatchWorkers. A stream at the limit is not read until some of its results are sent. All streams and batches of a
	// connection share the same number, and those of the server four times as many; in addition, each stream has 2 of its
	// own, and each batch one.
	maxInFlight = 1_024
	// batchRequests is the maximum number of requests in batches that are decided at once; other batches wait. A request of a
	// batch takes about 250 bytes until the batch is complete.
	batchRequests = 32 * check.MaxBatch
)

// Options configures a Service.
type Options = check.Options

// Service implements the check API. It may be registered with several servers.
type Service struct {
	checkv1.UnimplementedCheckServiceServer
	engine   check.Engine
	options  Options
	headers  limitfields.Headers
	drain    sync.Once
	draining chan struct{}
	idle     atomic.Int64 // idle workers of streams
	// connections limits the checks in flight on each connection and in total.
	connections *connections
	maxInFlight int
	batches     *semaphore.Weighted
	failures    ratelog.Limiter
}

// New returns a service that uses the engine.
func New(engine check.Engine, options Options) *Service {
	return &Service{
		engine: engine, options: options.Complete(), headers: limitfields.Headers{Choice: options.Headers}, draining: make(chan struct{}),
		connections: newConnections(maxInFlight), maxInFlight: maxInFlight,
		batches: semaphore.NewWeighted(batchRequests),
	}
}

// Register registers the check API with a server, which must use Codec.
func (s *Service) Register(r grpc.ServiceRegistrar) { r.RegisterService(description(), s) }

// Drain asks the callers of all streams, including future ones, to use another server. Until they do, requests are decided as
// before.
func (s *Service) Drain() { s.drain.Do(func() { close(s.draining) }) }

// Check decides a request and charges it.
func (s *Service) Check(ctx context.Context, req *checkv1.CheckRequest) (*checkv1.CheckResponse, error) {
	return s.check(ctx, req, s.options.Slots)
}

// check decides a request. If it begins, slots keeps what it acquires.
func (s *Service) check(ctx context.Context, req *checkv1.CheckRequest, slots *check.Slots) (*checkv1.CheckResponse, error) {
	if !req.GetBegin() {
		return s.decide(ctx, req, s.engine.Check)
	}
	var held check.Held
	response, err := s.respond(ctx, req, func(ctx context.Context, req headgate.Request) (d headgate.Decision, err error) {
		d, held, err = slots.Begin(ctx, req, s.engine.Begin)
		return d, err
	})
	if err == nil {
		response.Slots, response.LeaseUs = held.Token, held.Lease.Microseconds()
	}
	return response, err
}

// Peek decides a request without charging it.
func (s *Service) Peek(ctx context.Context, req *checkv1.CheckRequest) (*checkv1.CheckResponse, error) {
	return s.decide(ctx, req, s.engine.Peek)
}

// Refund returns the cost of a request, for authorized callers.
func (s *Service) Refund(ctx context.Context, req *checkv1.CheckRequest) (*checkv1.CheckResponse, error) {
	if err := s.options.MayRefund.AuthorizeCall(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	return s.decide(ctx, req, s.engine.Refund)
}

// Reserve reserves the cost of a request.
func (s *Service) Reserve(ctx context.Context, req *checkv1.ReserveRequest) (*checkv1.ReserveResponse, error) {
	return s.reserve(ctx, req.GetRequest(), req.GetHoldUs(), s.engine.Reserve)
}

// Extend continues a reservation.
func (s *Service) Extend(ctx context.Context, m *checkv1.ExtendRequest) (*checkv1.ReserveResponse, error) {
	used, err := s.request(m.GetUsed())
	if err != nil {
		return nil, err
	}
	return s.reserve(ctx, m.GetExpected(), m.GetHoldUs(),
		func(ctx context.Context, expected headgate.Request, hold time.Duration) (headgate.Reservation, error) {
			return s.engine.Extend(ctx, m.GetReservation(), used, expected, hold)
		})
}

func (s *Service) reserve(
	ctx context.Context, m *checkv1.CheckRequest, holdUs int64,
	reserve func(context.Context, headgate.Request, time.Duration) (headgate.Reservation, error),
) (*checkv1.ReserveResponse, error) {
	hold := span(holdUs)
	if err := check.ValidateHold(hold); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	var held headgate.Reservation
	decision, err := s.decide(ctx, m, func(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
		var err error
		held, err = reserve(ctx, req, hold)
		return held.Decision, err
	})
	if err != nil {
		return nil, err
	}
	return &checkv1.ReserveResponse{Decision: decision, Reservation: held.Token, Covered: held.Covered}, nil
}

// Commit ends a reservation and charges the actual cost.
func (s *Service) Commit(ctx context.Context, req *checkv1.CommitRequest) (*checkv1.CheckResponse, error) {
	return s.decide(ctx, &checkv1.CheckRequest{Attributes: req.GetAttributes(), Cost: req.GetCost()},
		func(ctx context.Context, actual headgate.Request) (headgate.Decision, error) {
			return s.engine.Commit(ctx, req.GetReservation(), actual)
		})
}

// Cancel ends a reservation without a charge.
func (s *Service) Cancel(ctx context.Context, req *checkv1.CancelRequest) (*checkv1.CheckResponse, error) {
	return s.decide(ctx, nil, func(ctx context.Context, _ headgate.Request) (headgate.Decision, error) {
		return s.engine.Cancel(ctx, req.GetReservation())
	})
}

// decideFunc is a method of the engine that decides a request.
type decideFunc func(context.Context, headgate.Request) (headgate.Decision, error)

// decide validates a request that does not begin, and decides it.
func (s *Service) decide(ctx context.Context, m *checkv1.CheckRequest, decide decideFunc) (*checkv1.CheckResponse, error) {
	if m.GetBegin() {
		return nil, status.Error(codes.InvalidArgument, "begin: only for Check, CheckBatch and CheckStream: omit it")
	}
	return s.respond(ctx, m, decide)
}

// respond validates a request and decides it. An unavailable store is not an error here, because gRPC might then retry: the
// decision contains it.
func (s *Service) respond(ctx context.Context, m *checkv1.CheckRequest, decide decideFunc) (*checkv1.CheckResponse, error) {
	req, err := s.request(m)
	if err != nil {
		return nil, err
	}
	d, err := decide(tracing.Within(ctx, m.GetTraceparent()), req)
	if err != nil && d.Path != headgate.PathFailed {
		return nil, s.failure(ctx, req.Rule, err)
	}
	response := responseTo(&d)
	if m.GetWithHeaders() {
		response.Headers = map[string]string{}
		s.headers.Each(&d, limitfields.RetryAfter(&d, rand.Int64N), func(field *limitfields.Field, value []byte) {
			response.Headers[field.Name] = string(value)
		})
	}
	return response, nil
}

// request returns the request of a message, normalized and validated.
func (s *Service) request(m *checkv1.CheckRequest) (headgate.Request, error) {
	req := headgate.Request{Attributes: m.GetAttributes(), Cost: m.GetCost(), Rule: m.GetRule()}
	err := s.options.Identity.Normalize(req.Attributes)
	if err == nil {
		err = check.Validate(req)
	}
	if err != nil {
		return req, status.Error(codes.InvalidArgument, err.Error())
	}
	return req, nil
}

// failure converts an error of the engine to a status, with the remedy.
func (s *Service) failure(ctx context.Context, rule string, err error) error {
	switch {
	case errors.Is(err, headgate.ErrUnknownRule):
		return status.Errorf(codes.NotFound,
			"rule %q not found in version %s of the rules of this server: add it, or omit rule to check all matching rules",
			rule, s.engine.Rules().Version())
	case errors.Is(err, headgate.ErrInvalidToken):
		return status.Errorf(codes.InvalidArgument,
			"reservation: %v: send the complete reservation of Reserve to a server with the same namespace, secret_file and region; if it "+
				"returned none, no call is needed", err)
	}
	check.LogFailure(ctx, s.options.Log, &s.failures, err)
	switch {
	case errors.Is(err, check.ErrTooManySlots):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, headgate.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
