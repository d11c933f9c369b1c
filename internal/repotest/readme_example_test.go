package repotest

import (
	"context"
	"expvar"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/retryafter"
	"github.com/headgate/headgate/ruledoc"
	"github.com/headgate/headgate/storewrap"
)

// Example contains the Go code of the README.
func Example() {
	_ = func(ctx context.Context, mux http.Handler) error {
		redis, err := redisstore.Open("redis://localhost:6379")
		if err != nil {
			return err
		}
		store := storewrap.New(redis, storewrap.Options{}) // leases, cached denials, deadline, circuit breaker, local share
		limiter, err := headgate.New(store)
		if err != nil {
			return err
		}
		_, err = ruledoc.Watch(ctx, ruledoc.WatchOptions{
			Paths: []string{"rules.yaml"},
			Apply: func(doc *ruledoc.Document) error { return doc.Apply(limiter) },
		})
		if err != nil {
			return err
		}
		who, err := identity.New(identity.Options{
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			APIKey:         identity.APIKey{Header: "X-API-Key"},
		})
		if err != nil {
			return err
		}

		limit := httplimit.New(limiter, httplimit.Options{Identity: who})
		http.Handle("/", limit(mux))

		limits, err := grpclimit.New(limiter, grpclimit.Options{Identity: who})
		if err != nil {
			return err
		}
		server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
		defer server.Stop()

		decision, _ := limiter.Check(ctx, headgate.Request{
			Attributes: headgate.Attributes{"path": "/api/v1/login", "method": "POST", "ip": "192.0.2.1"},
		})
		if !decision.Allowed {
			// decision.DeniedBy() is the limit that denied, decision.RetryAfter is when to retry
			return nil
		}
		return nil
	}
	_ = func(ctx context.Context, limiter *headgate.Limiter, req headgate.Request, r *http.Request, conn net.Conn, serve func(net.Conn)) {
		done := httplimit.Keep(r)
		go func() {
			defer done(headgate.Outcome{Status: http.StatusSwitchingProtocols})
			serve(conn)
		}()

		decision, _ := limiter.Begin(ctx, req)
		defer decision.Done(headgate.Outcome{})
	}
	_ = func(limiter *headgate.Limiter, who *identity.Resolver, decisions, denials *expvar.Map) func(http.Handler) http.Handler {
		observed := limiter.WithObserver(func(ctx context.Context, o *headgate.Observation) {
			decisions.Add(string(o.Decision.Path), 1) // an expvar.Map, a Prometheus counter, a span of ctx
			if l := o.Decision.DeniedBy(); l != nil {
				denials.Add(l.Rule, 1)
			}
		})
		limit := httplimit.New(observed, httplimit.Options{Identity: who})
		return limit
	}
	_ = func(ctx context.Context, limiter *headgate.Limiter, caller headgate.Attributes) error {
		held, err := limiter.Reserve(ctx, headgate.Request{Attributes: caller, Cost: 800}, 2*time.Minute)
		if err != nil {
			return err
		}
		// if held.Decision.Allowed, ask the model
		_, err = limiter.Commit(ctx, held.Token, headgate.Request{Cost: 731})
		return err
	}
	_ = func() error {
		limiter, err := client.New(client.Options{
			Addresses: []string{"headgate-1:8081", "headgate-2:8081"},
			Token:     os.Getenv("HEADGATE_TOKEN"), // from headgate token create NAME --role caller
		})
		limiter.Close()
		return err
	}
	_ = func(ctx context.Context, store headgate.Store, userID string) error {
		limiter, err := headgate.New(store, headgate.Rule{
			ID:    "login-by-ip",
			Match: headgate.Match{Path: "/login", Method: "POST"},
			By:    []string{"ip"},
			Limit: headgate.PerMinute(10),
		})
		if err != nil {
			return err
		}
		_ = limiter

		res, err := headgate.Take(ctx, store, headgate.PerMinute(10), "login", userID)
		switch {
		case err != nil: // the store did not decide; you must
		case !res.Allowed: // retry after res.RetryAfter
		default: // allowed; res.Remaining units are left
		}

		client := &http.Client{Transport: retryafter.New(http.DefaultTransport, retryafter.Options{})}
		client.CloseIdleConnections()
		return err
	}
}
