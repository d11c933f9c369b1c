package main

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/envoy"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

const connections = 32

// route is a route of Envoy, with the rate limit service that it calls.
type route struct {
	*envoy.Route
	name string
	of   *bare.Service // nil if none is called
	keys int64         // of a subject in Redis
}

// throughEnvoy compares the throughput and latency of clients of an Envoy.
func throughEnvoy(s *paired.Suite, all *services) {
	routes := []*route{
		{name: "e0  Envoy alone"},
		{name: "ea  + bare, no store", of: all.atOnce},
		{name: "eb  + bare, smallest script", of: all.bare, keys: 1},
		{name: "ec  + envoyproxy/ratelimit", of: all.theirs, keys: 1},
		{name: "ed  + headgate serve", of: all.ours, keys: 1},
	}
	addresses := make([]string, len(routes))
	for i, w := range routes {
		if w.of != nil {
			addresses[i] = w.of.Address
		}
	}
	proxy := envoy.Start(s, connections, addresses...)
	variants := make([]paired.Variant, len(routes))
	for i, w := range routes {
		w.Route = proxy.Routes[i]
		all.expectKeys(s, w.name, w.keys, func() error { return w.Clients[0].Get(subjects + 100 + i) })
		cpu := proxy.CPU
		if w.of != nil {
			cpu = func() time.Duration { return proxy.CPU() + w.of.CPU() }
		}
		variants[i] = paired.Variant{
			Name: w.name, Callers: connections, ServerCPU: cpu,
			Do: func(caller, n int) error { return w.Clients[caller].Get(subject(caller, n)) },
		}
	}
	expectServiceCalls(s, proxy, routes)
	got := s.Measure(fmt.Sprintf("through Envoy, %d connections, 1 descriptor; server CPU of Envoy and the service", connections),
		s.Rounds, s.Slice, variants)
	latencies(s, routes)
	expectServiceCalls(s, proxy, routes)
	s.ExpectMin("ed ÷ eb, through Envoy, throughput", got.Ratio("ed", "eb", paired.Throughput), 0.93)
}

// expectServiceCalls fails unless Envoy has called the service for every request so far.
func expectServiceCalls(s *paired.Suite, proxy *envoy.Proxy, routes []*route) {
	for i, w := range routes {
		if w.of == nil {
			continue
		}
		sent := 0
		for _, c := range w.Clients {
			sent += c.Sent
		}
		if calls := proxy.ServiceCalls(s, i); calls != sent {
			s.Fatalf("%s: %d requests, but Envoy called the service %d times", w.name, sent, calls)
		}
	}
}

// latencies prints the latencies of a single client.
func latencies(s *paired.Suite, routes []*route) {
	const calls = 100
	medians := make([][]float64, len(routes))
	for round := range s.Rounds {
		for i, w := range routes {
			durations := make([]time.Duration, calls)
			for n := range durations {
				start := time.Now()
				testenv.NoError(s, w.Clients[0].Get(subject(round, n)))
				durations[n] = time.Since(start)
			}
			medians[i] = append(medians[i], paired.Quantile(0.5, durations).Seconds()*1000)
		}
	}
	fmt.Println("\n1 connection, p50, ms")
	for i, w := range routes {
		m := paired.Of(medians[i])
		fmt.Printf("%-38s %9.3f (%.3f–%.3f)\n", w.name, m.Value, m.Low, m.High)
	}
}
