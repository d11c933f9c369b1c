package main

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/envoy"
	"github.com/headgate/headgate/bench/internal/paired"
)

// throughEnvoy compares the throughput of clients of an Envoy.
func (b *bench) throughEnvoy(all *services) {
	const connections = 32
	const atOnce, ours = "Envoy + bare, no store", "Envoy + Headgate, leased"
	names, of := []string{atOnce, "Envoy + envoyproxy/ratelimit", ours}, []*service{&all.atOnce, &all.theirs, &all.ours}
	proxy := envoy.Start(b, connections, all.atOnce.Address, all.theirs.Address, all.ours.Address)
	variants := make([]paired.Variant, len(names))
	for i := range variants {
		clients := proxy.Routes[i].Clients
		cpu := b.cpu(of[i])
		variants[i] = paired.Variant{
			Name: names[i], Callers: connections, ServerCPU: func() time.Duration { return proxy.CPU() + cpu() },
			Warm: b.warm(of[i] == &all.ours),
			Do:   func(caller, n int) error { return clients[caller].Get(int(next(b.draws.hot, caller, n))) },
		}
	}
	title := fmt.Sprintf("through Envoy, %d connections; server CPU of Envoy, the service and Redis", connections)
	b.ratio(b.Measure(title, b.Rounds, b.Slice, variants), ours, atOnce, 0.95)
}
