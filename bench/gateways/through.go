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

// way is one through Envoy, by the service that it asks.
type way struct {
	*envoy.Route
	name string
	of   *bare.Service // nil if none is asked
	keys int64         // that a subject has in Redis
}

// throughEnvoy compares what the clients of an Envoy get.
func throughEnvoy(s *paired.Suite, all *services) {
	ways := []*way{
		{name: "e0  Envoy alone"},
		{name: "ea  + bare, answers at once", of: all.atOnce},
		{name: "eb  + bare, smallest script", of: all.bare, keys: 1},
		{name: "ec  + envoyproxy/ratelimit", of: all.theirs, keys: 1},
		{name: "ed  + headgate serve", of: all.ours, keys: 1},
	}
	addresses := make([]string, len(ways))
	for i, w := range ways {
		if w.of != nil {
			addresses[i] = w.of.Address
		}
	}
	proxy := envoy.Start(s, connections, addresses...)
	variants := make([]paired.Variant, len(ways))
	for i, w := range ways {
		w.Route = proxy.Routes[i]
		all.counted(s, w.name, w.keys, func() error { return w.Clients[0].Get(subjects + 100 + i) })
		cpu := proxy.CPU
		if w.of != nil {
			cpu = func() time.Duration { return proxy.CPU() + w.of.CPU() }
		}
		variants[i] = paired.Variant{
			Name: w.name, Callers: connections, ServerCPU: cpu,
			Do: func(caller, n int) error { return w.Clients[caller].Get(subject(caller, n)) },
		}
	}
	allAsked(s, proxy, ways)
	got := s.Measure(fmt.Sprintf("through Envoy, %d connections, 1 descriptor; server is Envoy and the service", connections),
		s.Rounds, s.Slice, variants)
	latencies(s, ways)
	allAsked(s, proxy, ways)
	s.ExpectMin("ed ÷ eb, through Envoy, throughput", got.Ratio("ed", "eb", paired.Throughput), 0.93)
}

// allAsked sees whether Envoy has asked about every request so far.
func allAsked(s *paired.Suite, proxy *envoy.Proxy, ways []*way) {
	for i, w := range ways {
		if w.of == nil {
			continue
		}
		sent := 0
		for _, c := range w.Clients {
			sent += c.Sent
		}
		if asked := proxy.ServiceCalls(s, i); asked != sent {
			s.Fatalf("%s: of %d requests Envoy has asked about %d", w.name, sent, asked)
		}
	}
}

// latencies are what a client sees that is alone.
func latencies(s *paired.Suite, ways []*way) {
	const calls = 100
	medians := make([][]float64, len(ways))
	for round := range s.Rounds {
		for i, w := range ways {
			took := make([]time.Duration, calls)
			for n := range took {
				start := time.Now()
				testenv.NoError(s, w.Clients[0].Get(subject(round, n)))
				took[n] = time.Since(start)
			}
			medians[i] = append(medians[i], paired.Quantile(0.5, took).Seconds()*1000)
		}
	}
	fmt.Println("\n1 connection, p50, ms")
	for i, w := range ways {
		m := paired.Of(medians[i])
		fmt.Printf("%-38s %9.3f (%.3f–%.3f)\n", w.name, m.Value, m.Low, m.High)
	}
}
