// Package envoyrls answers Envoy's rate limit filter: its RateLimitService v3, in full. It knows how descriptors become
// attributes and decisions become statuses, headers and metadata. It does not know how to decide, and trusts its callers about
// whom they ask for.
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

// Engine decides. A *headgate.Limiter is one.
type Engine interface {
	CheckAll(ctx context.Context, asks []headgate.BatchRequest) ([]headgate.Decision, error)
}

// Options of a Service.
type Options = check.Options

// Service answers. It is safe for use by many servers.
type Service struct {
	engine   Engine
	options  Options
	headers  limitfields.Headers
	failures ratelog.Limiter
}

// New makes a service that asks an engine.
func New(engine Engine, options Options) *Service {
	return &Service{engine: engine, options: options.Complete(), headers: limitfields.Headers{Choice: options.Headers}}
}

// Register makes a server answer Envoy. The server must have checkgrpc.Codec.
func (s *Service) Register(r grpc.ServiceRegistrar) { r.RegisterService(&description, s) }

const serviceName = "envoy.service.ratelimit.v3.RateLimitService"

var description = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{check.Method("/"+serviceName+"/ShouldRateLimit", (*Service).decide)},
	Metadata:    "envoy/service/ratelimit/v3/rls.proto",
}

func (s *Service) decide(ctx context.Context, req *request) (*response, error) {
	asks, err := req.asks(s.options.Identity)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	for i := range asks {
		if !asks[i].Credit {
			continue
		}
		if err := s.options.MayRefund.JudgeCall(ctx); err != nil {
			return nil, status.Error(codes.PermissionDenied, "is_negative_hits: "+err.Error())
		}
		break
	}
	decisions, err := s.engine.CheckAll(ctx, asks)
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
