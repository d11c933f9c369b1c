package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/server/listen"
)

// endpoint is a listener with its server.
type endpoint struct {
	name, address string
	serve         func(net.Listener) error
	// shutdown completes pending requests until ctx ends, and then closes the remaining connections.
	shutdown func(ctx context.Context)
	listener *listen.Listener
}

// listen serves until ctx ends, and then drains.
func (s *server) listen(ctx context.Context) error {
	started := false
	defer func() {
		for _, e := range s.endpoints {
			if !started {
				e.shutdown(ctx) // frees goroutines that run even before it serves
			}
		}
	}()
	tokens, closeTokens, err := s.openTokens() //nolint:contextcheck // as below
	if err != nil {
		return err
	}
	defer closeTokens()
	gate, err := s.openGate() //nolint:contextcheck // the gate lives as long as the server
	if err != nil {
		return err
	}
	s.addChecks(gate, tokens) //nolint:contextcheck // background updates of a package are stopped separately
	s.addAdmin(gate, tokens)  //nolint:contextcheck // as above
	s.addRegions()
	s.addHTTP("ops", s.config.Listen.Ops, listen.NewHTTP(s.health.ops(s.metrics.Handler()), nil, s.Log))

	addresses, err := s.open(ctx)
	if err != nil {
		return err
	}
	started = true
	var serving sync.WaitGroup
	defer serving.Wait()
	failed := make(chan error, len(s.endpoints))
	for _, e := range s.endpoints {
		secure := s.certificates != nil && e.name != "ops" || e.name == "regions"
		s.Log.Info("listening", "listener", e.name, "address", addresses[e.name], "tls", secure)
		serving.Go(func() {
			if err := e.serve(e.listener); err != nil {
				failed <- fmt.Errorf("listen.%s: %w", e.name, err)
			}
		})
	}
	if s.Up != nil {
		err = s.Up(addresses)
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	s.drain(context.WithoutCancel(ctx))
	return err
}

// open opens all listeners, or none if one fails.
func (s *server) open(ctx context.Context) (addresses map[string]string, err error) {
	addresses = map[string]string{}
	for i, e := range s.endpoints {
		opened := s.endpoints[:i]
		if e.listener, err = listen.Listen(ctx, "listen."+e.name, e.address, s.Log); err == nil {
			opened, err = s.endpoints[:i+1], checkBound(e)
		}
		if err != nil {
			for _, e := range opened {
				_ = e.listener.Close() // it has no connections yet
			}
			return nil, err
		}
		addresses[e.name] = e.listener.Addr().String()
		s.metrics.Connections(e.name, e.listener.Open)
	}
	return addresses, nil
}

// checkBound rejects a listener with a loopback name that is bound to an address reachable from other hosts: localhost is
// what the host resolves it to.
func checkBound(e *endpoint) error {
	host, _, _ := net.SplitHostPort(e.address) // it is valid: the listener is open
	bound, ok := e.listener.Addr().(*net.TCPAddr)
	if !ok || !netaddr.IsLoopback(host) || bound.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listen.%s: %s resolves to %s, which is reachable from other hosts: write 127.0.0.1", e.name, host, bound.IP)
}

// drain announces the shutdown to load balancers and clients, waits for pending requests, and stops.
func (s *server) drain(ctx context.Context) {
	began := time.Now()
	s.Log.Info("draining")
	s.health.draining.Store(true)
	for _, notify := range s.onDrain {
		notify()
	}
	if !s.Dev {
		time.Sleep(noticeTime)
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	for _, last := range []bool{false, true} { // ops reports the state of the others until the end
		var stopping sync.WaitGroup
		for _, e := range s.endpoints {
			if (e.name == "ops") == last {
				stopping.Go(func() { e.shutdown(ctx) })
			}
		}
		stopping.Wait()
	}
	s.releaseSlots(ctx)
	s.Log.Info("stopped", "duration", time.Since(began).Round(time.Millisecond).String(), "timed_out", ctx.Err() != nil)
}

// releaseSlots releases the slots of all callers, which otherwise stay in use until their lease ends.
func (s *server) releaseSlots(ctx context.Context) {
	s.slots.Close() //nolint:contextcheck // releases do not belong to a request
	left := minReleaseTime
	if until, ok := ctx.Deadline(); ok {
		left = min(max(left, time.Until(until)), maxReleaseTime)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	if err := s.limiter.Close(ctx); err != nil {
		s.Log.Warn("slots of requests in flight may not be released; they are in use until their lease ends", "error", err)
	}
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
				_ = server.Close() // the drain time is over
			}
		},
	})
}

func (s *server) addGRPC(name, address string, server *grpc.Server) {
	s.endpoints = append(s.endpoints, &endpoint{
		name: name, address: address, serve: server.Serve,
		shutdown: func(ctx context.Context) {
			cancel := context.AfterFunc(ctx, server.Stop)
			defer cancel()
			server.GracefulStop()
		},
	})
}
