package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/server/listen"
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
	s.addHTTP("ops", s.config.Listen.Ops, listen.NewHTTP(s.health.ops(s.metrics.Handler()), nil, s.Log))

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
		s.Log.Info("listening", "listener", e.name, "address", addresses[e.name], "tls", secure)
		serving.Go(func() {
			if err := e.serve(e.listener); err != nil {
				broken <- fmt.Errorf("listen.%s: %w", e.name, err)
			}
		})
	}
	if s.Up != nil {
		err = s.Up(addresses)
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
		if e.listener, err = listen.Listen(ctx, "listen."+e.name, e.address, s.Log); err == nil {
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
	s.Log.Info("stopping")
	s.health.draining.Store(true)
	for _, tell := range s.onDrain {
		tell()
	}
	if !s.Dev {
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
	s.Log.Info("stopped", "took", time.Since(began).Round(time.Millisecond).String(), "cut", ctx.Err() != nil)
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
