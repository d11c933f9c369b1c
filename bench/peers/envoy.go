package main

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/envoy"
	"github.com/headgate/headgate/bench/internal/paired"
)

// throughEnvoy compares what the clients of an Envoy get.
func (s *suite) throughEnvoy(all *services) error {
	const connections = 32
	const atOnce, ours = "Envoy + bare, answers at once", "Envoy + Headgate, leased"
	names, of := []string{atOnce, "Envoy + envoyproxy/ratelimit", ours}, []*service{&all.atOnce, &all.theirs, &all.ours}
	routes := make([]*envoy.Route, len(names))
	for i := range routes {
		routes[i] = &envoy.Route{Service: of[i].address}
	}
	proxy, err := envoy.Start(s.scope, routes)
	if err != nil {
		return err
	}
	variants := make([]paired.Variant, len(names))
	for i := range variants {
		clients := make([]*envoy.Client, connections)
		for c := range clients {
			if clients[c], err = envoy.Dial(s.scope, routes[i].Listen); err != nil {
				return err
			}
		}
		cpu := s.cpu(of[i])
		variants[i] = paired.Variant{
			Name: names[i], Callers: connections, ServerCPU: func() time.Duration { return proxy.CPU() + cpu() },
			Warm: s.warm(of[i] == &all.ours),
			Do:   func(caller, n int) error { return clients[caller].Get(int(next(s.draws.hot, caller, n))) },
		}
	}
	title := fmt.Sprintf("\nthrough Envoy, %d connections; server is Envoy, the service and Redis", connections)
	got, err := s.measure(title, s.slice, variants)
	if err != nil {
		return err
	}
	s.atLeast(got, ours, atOnce, 0.95)
	return nil
}
