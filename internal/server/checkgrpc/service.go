package checkgrpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

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
	// maxInFlight is how many checks of one stream are under way at a time, and of one batch if that is fewer than
	// check.BatchWorkers. A stream with as many is not read further until some of its answers are sent. All streams and batches
	// of a connection share as many, and those of the server four times as many; each stream has 2 of its own besides, and each
	// batch one.
	maxInFlight = 1_024
	// batchRequests is how many requests the batches have that are decided at once; others wait. A request of a batch takes about 250
	// bytes until all of the batch are answered.
	batchRequests = 32 * check.MaxBatch
)

// Options of a Service.
type Options = check.Options

// Service answers the check API. It is safe for use by many servers.
type Service struct {
	checkv1.UnimplementedCheckServiceServer
	engine   check.Engine
	options  Options
	headers  limitfields.Headers
	drain    sync.Once
	draining chan struct{}
	idle     atomic.Int64 // workers of streams without a check
	// connections bounds what is in flight on each and in all.
	connections *connections
	maxInFlight int
	batches     *semaphore.Weighted
	failures    ratelog.Limiter
}

// New makes a service that asks an engine.
func New(engine check.Engine, options Options) *Service {
	return &Service{
		engine: engine, options: options.Complete(), headers: limitfields.Headers{Choice: options.Headers}, draining: make(chan struct{}),
		connections: newConnections(maxInFlight), maxInFlight: maxInFlight,
		batches: semaphore.NewWeighted(batchRequests),
	}
}

// Register makes a server answer the check API. The server must have the Codec.
func (s *Service) Register(r grpc.ServiceRegistrar) { r.RegisterService(description(), s) }

// Drain tells the callers of all streams, also of those to come, that they should go elsewhere. Everything is answered
// as before until they do.
func (s *Service) Drain() { s.drain.Do(func() { close(s.draining) }) }

// Check decides a request and charges it.
func (s *Service) Check(ctx context.Context, req *checkv1.CheckRequest) (*checkv1.CheckResponse, error) {
	return s.decide(ctx, req, s.engine.Check)
}

// Peek says what Check would.
func (s *Service) Peek(ctx context.Context, req *checkv1.CheckRequest) (*checkv1.CheckResponse, error) {
	return s.decide(ctx, req, s.engine.Peek)
}

// Refund gives back what a request costs, to callers who may.
func (s *Service) Refund(ctx context.Context, req *checkv1.CheckRequest) (*checkv1.CheckResponse, error) {
	if err := s.options.MayRefund.JudgeCall(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	return s.decide(ctx, req, s.engine.Refund)
}

// Reserve holds what a request may cost.
func (s *Service) Reserve(ctx context.Context, req *checkv1.ReserveRequest) (*checkv1.ReserveResponse, error) {
	hold := span(req.GetHoldUs())
	if err := check.ValidateHold(hold); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	var token []byte
	decision, err := s.decide(ctx, req.GetRequest(),
		func(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
			held, err := s.engine.Reserve(ctx, req, hold)
			token = held.Token
			return held.Decision, err
		})
	if err != nil {
		return nil, err
	}
	return &checkv1.ReserveResponse{Decision: decision, Reservation: token}, nil
}

// Commit ends a reservation and charges what the request did cost.
func (s *Service) Commit(ctx context.Context, req *checkv1.CommitRequest) (*checkv1.CheckResponse, error) {
	return s.decide(ctx, &checkv1.CheckRequest{Attributes: req.GetAttributes(), Cost: req.GetCost()},
		func(ctx context.Context, actual headgate.Request) (headgate.Decision, error) {
			return s.engine.Commit(ctx, req.GetReservation(), actual)
		})
}

// Cancel ends a reservation and charges nothing.
func (s *Service) Cancel(ctx context.Context, req *checkv1.CancelRequest) (*checkv1.CheckResponse, error) {
	return s.decide(ctx, nil, func(ctx context.Context, _ headgate.Request) (headgate.Decision, error) {
		return s.engine.Cancel(ctx, req.GetReservation())
	})
}

// decide answers one request by what the engine says. That the store did not answer is no error here, where gRPC might
// have it sent again: the decision says so.
func (s *Service) decide(
	ctx context.Context, m *checkv1.CheckRequest, ask func(context.Context, headgate.Request) (headgate.Decision, error),
) (*checkv1.CheckResponse, error) {
	req := headgate.Request{Attributes: m.GetAttributes(), Cost: m.GetCost(), Rule: m.GetRule()}
	err := s.options.Identity.Normalize(req.Attributes)
	if err == nil {
		err = check.Validate(req)
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	d, err := ask(tracing.Within(ctx, m.GetTraceparent()), req)
	if err != nil && d.Path != headgate.PathFailed {
		return nil, s.failure(ctx, req.Rule, err)
	}
	answer := responseTo(&d)
	if m.GetWithHeaders() {
		answer.Headers = map[string]string{}
		s.headers.Each(&d, limitfields.RetryAfter(&d, rand.Int64N), func(field *limitfields.Field, value []byte) {
			answer.Headers[field.Name] = string(value)
		})
	}
	return answer, nil
}

// failure is an engine's error for the caller, who should know what to do about it.
func (s *Service) failure(ctx context.Context, rule string, err error) error {
	switch {
	case errors.Is(err, headgate.ErrUnknownRule):
		return status.Errorf(codes.NotFound,
			"rule %q is not among the rules of this server, version %s: add it, or leave rule out to ask all that match",
			rule, s.engine.Rules().Version())
	case errors.Is(err, headgate.ErrInvalidToken):
		return status.Errorf(codes.InvalidArgument,
			"reservation: %v: send what Reserve answered, whole, to a server of the same namespace and secret_file; if it answered none "+
				"there is nothing to do", err)
	}
	check.LogFailure(ctx, s.options.Log, &s.failures, err)
	if errors.Is(err, headgate.ErrUnavailable) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
