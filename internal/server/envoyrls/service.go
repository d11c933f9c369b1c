// Package envoyrls implements RateLimitService v3 for Envoy's rate limit filter. It converts descriptors to attributes, and
// decisions to statuses, headers and metadata. Decisions are made by an Engine. Callers are trusted to identify their
// clients.
package envoyrls

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelog"
	"github.com/headgate/headgate/internal/server/check"
)

// Engine makes the decisions. *headgate.Limiter implements it.
type Engine interface {
	CheckAll(ctx context.Context, requests []headgate.BatchRequest) ([]headgate.Decision, error)
}

// Options configures a Service.
type Options = check.Options

// Service implements RateLimitService. It may be registered with several servers.
type Service struct {
	engine   Engine
	options  Options
	headers  limitfields.Headers
	failures ratelog.Limiter
}

// New returns a service that uses the engine.
func New(engine Engine, options Options) *Service {
	return &Service{engine: engine, options: options.Complete(), headers: limitfields.Headers{Choice: options.Headers}}
}

// Register registers the service with a server, which must use checkgrpc.Codec.
func (s *Service) Register(r grpc.ServiceRegistrar) { r.RegisterService(&description, s) }

const serviceName = "envoy.service.ratelimit.v3.RateLimitService"

var description = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{check.Method("/"+serviceName+"/ShouldRateLimit", (*Service).decide)},
	Metadata:    "envoy/service/ratelimit/v3/rls.proto",
}

func (s *Service) decide(ctx context.Context, req *request) (*response, error) {
	batch, err := req.batch(s.options.Identity)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	for i := range batch {
		if !batch[i].Credit {
			continue
		}
		if err := s.options.MayRefund.AuthorizeCall(ctx); err != nil {
			return nil, status.Error(codes.PermissionDenied, "is_negative_hits: "+err.Error())
		}
		break
	}
	decisions, err := s.engine.CheckAll(ctx, batch)
	if err != nil {
		check.LogFailure(ctx, s.options.Log, &s.failures, err)
		code := codes.Internal
		if errors.Is(err, headgate.ErrTooManyLimits) {
			code = codes.InvalidArgument
		}
		return nil, status.Error(code, err.Error())
	}
	return &response{req.align(decisions), &s.headers}, nil
}
