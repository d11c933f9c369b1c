package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/callers"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/internal/server/checkhttp"
	"github.com/headgate/headgate/internal/server/envoyrls"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/internal/server/tracing"
)

// addChecks adds the check API over HTTP and gRPC. Callers that the config does not allow to refund units may be allowed to
// by their token.
func (s *server) addChecks(gate *callers.Gate, tokens adminapi.Authorities) {
	engine, refunds := s.limiter.WithObserver(s.observe), s.config.Listen.AllowRefunds
	var editors check.MayRefund
	if len(tokens) > 0 {
		editors = adminapi.NewGuard(tokens, s.Log).MayRefund
	}
	options := func(allowRefunds bool) check.Options {
		o := check.Options{Identity: s.resolver, Headers: s.config.Headers, MayRefund: editors, Slots: s.slots, Log: s.Log}
		if allowRefunds {
			o.MayRefund = check.AllRefund
		}
		return o
	}
	checks := checkhttp.New(engine, options(refunds.HTTP))
	s.addHTTP("http", s.config.Listen.HTTP, listen.NewHTTP(tracing.HTTP(s.closeWhileDraining(gate.HTTP(checks))), s.secure(gate, "http"), s.Log))
	if s.config.Listen.GRPC == "" {
		return
	}
	server := listen.NewGRPC(s.secure(gate, "grpc"), checkgrpc.Codec(), gate.GRPC(tracing.Tap), grpc.ChainStreamInterceptor(gate.Stream, s.metrics.Stream))
	api := checkgrpc.New(engine, options(refunds.GRPC))
	api.Register(server)
	envoyrls.New(engine, options(refunds.GRPC)).Register(server)
	state := grpchealth.NewServer()
	healthv1.RegisterHealthServer(server, state)
	names := append(slices.Collect(maps.Keys(server.GetServiceInfo())), "") // "" is the server as a whole
	s.health.onServing(func(ok bool) {
		status := healthv1.HealthCheckResponse_NOT_SERVING
		if ok {
			status = healthv1.HealthCheckResponse_SERVING
		}
		for _, name := range names {
			state.SetServingStatus(name, status)
		}
	})
	s.onDrain = append(s.onDrain, state.Shutdown, api.Drain)
	s.addGRPC("grpc", s.config.Listen.GRPC, server)
}

// openGate returns the gate that authorizes callers of the check API. With --dev all callers on this machine are authorized.
func (s *server) openGate() (*callers.Gate, error) {
	o := callers.Options{Rejected: s.metrics.Rejected([]string{"http", "grpc", "admin"}, callers.Reasons()), Log: s.Log}
	if c := s.config.Callers; !s.Dev {
		o.Names = c.Names
		if c.TokensFile != "" {
			file, err := adminapi.ReadTokens(c.TokensFile, s.Log)
			if err != nil {
				return nil, fmt.Errorf("listen.tokens_file: %w", err)
			}
			if !file.Has(adminapi.CallerRole) {
				s.Log.Warn("no token has the role caller: all callers are rejected at listen.http and listen.grpc", "file", c.TokensFile)
			}
			o.Token = func(token string) bool {
				caller, err := file.Caller(context.Background(), token)
				return err == nil && caller.Role == adminapi.CallerRole
			}
		}
		if c.Open {
			s.Log.Warn("listen.open is true: any client that reaches listen.http or listen.grpc can charge the limits of any other")
		}
	}
	gate := callers.New(o)
	s.health.rejected = gate.Last
	return gate, nil
}

// secure returns the TLS configuration of a listener, or nil without TLS.
func (s *server) secure(gate *callers.Gate, listener string) *tls.Config {
	if s.certificates == nil {
		return nil
	}
	return s.certificates.Config(gate.Handshake(listener))
}

// closeWhileDraining closes persistent connections while the server is draining, so that their clients connect to another server.
func (s *server) closeWhileDraining(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.health.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
