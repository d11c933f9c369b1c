package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/callers"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/internal/server/checkhttp"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/envoyrls"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/tracing"
)

// endpoint is a listener and what serves it.
type endpoint struct {
	name, address string
	serve         func(net.Listener) error
	// shutdown answers what was asked, until ctx ends; then it cuts.
	shutdown func(ctx context.Context)
	listener *listen.Listener
}

// listen serves until ctx ends, then drains.
func (s *server) listen(ctx context.Context) error {
	serves := false
	defer func() {
		for _, e := range s.endpoints {
			if !serves {
				e.shutdown(ctx) // it holds on to goroutines from the start
			}
		}
	}()
	tokens, forget, err := s.openTokens() //nolint:contextcheck // as below
	if err != nil {
		return err
	}
	defer forget()
	gate, err := s.openGate() //nolint:contextcheck // it lasts as long as the server
	if err != nil {
		return err
	}
	s.addChecks(gate, tokens) //nolint:contextcheck // what a package keeps up to date in the background has an end of its own
	s.addAdmin(gate, tokens)  //nolint:contextcheck // as above
	s.addHTTP("ops", s.config.Listen.Ops, listen.NewHTTP(s.health.ops(s.metrics.Handler()), nil, s.log))

	addresses, err := s.open(ctx)
	if err != nil {
		return err
	}
	serves = true
	var serving sync.WaitGroup
	defer serving.Wait()
	broken := make(chan error, len(s.endpoints))
	for _, e := range s.endpoints {
		secure := s.certificates != nil && e.name != "ops"
		s.log.Info("listening", "listener", e.name, "address", addresses[e.name], "tls", secure)
		serving.Go(func() {
			if err := e.serve(e.listener); err != nil {
				broken <- fmt.Errorf("listen.%s: %w", e.name, err)
			}
		})
	}
	if s.up != nil {
		err = s.up(addresses)
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-broken:
		}
	}
	s.drain(context.WithoutCancel(ctx))
	return err
}

// open opens all listeners or none.
func (s *server) open(ctx context.Context) (addresses map[string]string, err error) {
	addresses = map[string]string{}
	for i, e := range s.endpoints {
		opened := s.endpoints[:i]
		if e.listener, err = listen.Listen(ctx, "listen."+e.name, e.address, s.log); err == nil {
			opened, err = s.endpoints[:i+1], checkBound(e)
		}
		if err != nil {
			for _, e := range opened {
				_ = e.listener.Close() // nobody has connected yet
			}
			return nil, err
		}
		addresses[e.name] = e.listener.Addr().String()
		s.metrics.Connections(e.name, e.listener.Open)
	}
	return addresses, nil
}

// checkBound fails if a listener that the config takes for one of this machine is open beyond it: localhost is what the machine says.
func checkBound(e *endpoint) error {
	host, _, _ := net.SplitHostPort(e.address) // it was listened on
	bound, ok := e.listener.Addr().(*net.TCPAddr)
	if !ok || !netaddr.IsLoopback(host) || bound.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listen.%s: %s is %s on this machine, which others may reach: write 127.0.0.1", e.name, host, bound.IP)
}

// drain tells everybody to go elsewhere, gives them time, and stops.
func (s *server) drain(ctx context.Context) {
	began := time.Now()
	s.log.Info("stopping")
	s.health.draining.Store(true)
	for _, tell := range s.onDrain {
		tell()
	}
	if !s.dev {
		time.Sleep(noticeTime)
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	for _, last := range []bool{false, true} { // ops tells of the others to the end
		var stopping sync.WaitGroup
		for _, e := range s.endpoints {
			if (e.name == "ops") == last {
				stopping.Go(func() { e.shutdown(ctx) })
			}
		}
		stopping.Wait()
	}
	s.log.Info("stopped", "took", time.Since(began).Round(time.Millisecond).String(), "cut", ctx.Err() != nil)
}

func (s *server) addHTTP(name, address string, server *http.Server) {
	if address == "" {
		return
	}
	s.endpoints = append(s.endpoints, &endpoint{
		name: name, address: address,
		serve: func(l net.Listener) error { return listen.Serve(server, l) },
		shutdown: func(ctx context.Context) {
			if server.Shutdown(ctx) != nil {
				_ = server.Close() // what is cut now has had its time
			}
		},
	})
}

// addChecks adds the check API in its two forms, counted together. Whoever is not let give units back by the config may
// be by a token.
func (s *server) addChecks(gate *callers.Gate, tokens adminapi.Authorities) {
	engine, all := s.limiter.WithObserver(s.observe), s.config.Listen.AllowRefunds
	var mayRefund check.MayRefund
	if len(tokens) > 0 {
		mayRefund = adminapi.NewGuard(tokens, s.log).MayRefund
	}
	checks := checkhttp.New(engine, checkhttp.Options{
		Identity: s.resolver, Headers: headersOf(s.config.Headers), DraftVersion: httplimit.DraftVersion(s.config.Headers.Version),
		OlderDraft: s.config.Headers.OlderDraft, Log: s.log,
		AllowRefunds: all.HTTP, MayRefund: mayRefund,
	})
	s.addHTTP("http", s.config.Listen.HTTP, listen.NewHTTP(tracing.HTTP(s.farewell(gate.HTTP(checks))), s.secure(gate, "http"), s.log))
	if s.config.Listen.GRPC == "" {
		return
	}
	server := listen.NewGRPC(s.secure(gate, "grpc"), checkgrpc.Codec(), gate.GRPC(tracing.Tap), grpc.ChainStreamInterceptor(gate.Stream, s.metrics.Stream))
	h := s.config.Headers
	api := checkgrpc.New(engine, checkgrpc.Options{
		Identity: s.resolver, Log: s.log, AllowRefunds: all.GRPC, MayRefund: mayRefund,
		Headers: limitfields.Choice{Draft: h.Draft, Legacy: h.Legacy, Older: h.OlderDraft, Version: h.Version},
	})
	api.Register(server)
	envoyrls.New(engine, envoyrls.Options{
		Identity: s.resolver, Headers: headersOf(s.config.Headers), DraftVersion: httplimit.DraftVersion(s.config.Headers.Version),
		OlderDraft: s.config.Headers.OlderDraft, Log: s.log,
		AllowRefunds: all.GRPC, MayRefund: mayRefund,
	}).Register(server)
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
	s.endpoints = append(s.endpoints, &endpoint{
		name: "grpc", address: s.config.Listen.GRPC, serve: server.Serve,
		shutdown: func(ctx context.Context) {
			cancel := context.AfterFunc(ctx, server.Stop)
			defer cancel()
			server.GracefulStop()
		},
	})
}

// openGate makes what lets callers of the check API in. With --dev everybody on this machine may ask.
func (s *server) openGate() (*callers.Gate, error) {
	o := callers.Options{Rejected: s.metrics.Rejected([]string{"http", "grpc", "admin"}, callers.Reasons()), Log: s.log}
	if c := s.config.Callers; !s.dev {
		o.Names = c.Names
		if c.TokensFile != "" {
			file, err := adminapi.ReadTokens(c.TokensFile, s.log)
			if err != nil {
				return nil, fmt.Errorf("listen.tokens_file: %w", err)
			}
			if !file.Has(adminapi.CallerRole) {
				s.log.Warn("no token has the role caller: everybody is rejected at listen.http and listen.grpc", "file", c.TokensFile)
			}
			o.Token = func(token string) bool {
				caller, err := file.Caller(context.Background(), token)
				return err == nil && caller.Role == adminapi.CallerRole
			}
		}
		if c.Open {
			s.log.Warn("listen.open: whoever reaches listen.http and listen.grpc may ask about anybody")
		}
	}
	gate := callers.New(o)
	s.health.rejected = gate.Last
	return gate, nil
}

// secure is how a listener talks TLS; nil without.
func (s *server) secure(gate *callers.Gate, listener string) *tls.Config {
	if s.certificates == nil {
		return nil
	}
	return s.certificates.Config(gate.Handshake(listener))
}

// farewell makes clients that keep their connection look for another server while this one is draining.
func (s *server) farewell(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.health.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// adminLeeway is how far the clocks of those who sign tokens for the admin API may differ from ours.
const adminLeeway = 10 * time.Second

// openTokens opens all that knows tokens of the admin API. forget them in the end.
func (s *server) openTokens() (tokens adminapi.Authorities, forget func(), err error) {
	c, forget := s.config, func() {}
	if c.AdminTokensFile != "" {
		file, err := adminapi.ReadTokens(c.AdminTokensFile, s.log)
		if err != nil {
			return nil, nil, fmt.Errorf("admin.tokens_file: %w", err)
		}
		tokens = append(tokens, file)
	}
	if j := c.AdminJWT; len(j.Algorithms) > 0 {
		j.Leeway = adminLeeway
		signed, err := identity.NewTokens(j.JWT, s.log)
		if err != nil {
			return nil, nil, fmt.Errorf("admin.jwt: %w", err)
		}
		tokens = append(tokens, adminapi.JWT{Tokens: signed, Role: j.RoleClaim, Tenant: j.TenantClaim, Name: j.NameClaim})
		forget = signed.Close
	}
	if s.db != nil {
		tokens = append(tokens, adminapi.Lookup(s.lookUp))
	}
	return tokens, forget, nil
}

// lookUp finds the owner of a token in PostgreSQL.
func (s *server) lookUp(ctx context.Context, sum [sha256.Size]byte) (adminapi.Caller, bool, error) {
	t, err := s.db.TokenOf(ctx, sum)
	if errors.Is(err, pgrules.ErrNotFound) {
		return adminapi.Caller{}, false, nil
	}
	return adminapi.Caller{Name: t.Name, Role: adminapi.Role(t.Role), Tenant: t.Tenant, Subject: t.Subject}, err == nil, err
}

// addAdmin adds the admin API, never without tokens but to try it.
func (s *server) addAdmin(gate *callers.Gate, tokens adminapi.Authorities) {
	c := s.config
	switch {
	case c.Listen.Admin == "":
		return
	case len(tokens) == 0 && !s.dev:
		s.log.Info("the admin API is off, for it takes tokens: make one with headgate token create NAME, and name their " +
			"file in admin.tokens_file")
		return
	}
	o := adminapi.Options{
		Tokens: tokens, Open: s.dev, DB: s.db, RulesFrom: c.Rules, Normalize: s.resolver.Normalize, Log: s.log,
		Top: s.seen.top.Ask, Denials: s.seen.denied.Ask, ShowSubjects: string(c.ShowSubjects),
	}
	if s.redis != nil {
		o.Redis, o.Key = redact.Address(c.Redis.Address), s.redis.Key
	}
	s.addHTTP("admin", c.Listen.Admin, listen.NewHTTP(tracing.HTTP(adminapi.New(s.limiter, o)), s.secure(gate, "admin"), s.log))
}

func headersOf(h config.Headers) httplimit.Headers {
	switch {
	case h.Draft && h.Legacy:
		return httplimit.Both
	case h.Draft:
		return httplimit.Draft
	case h.Legacy:
		return httplimit.Legacy
	}
	return httplimit.Off
}
