package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/bench/internal/envoy"
	"github.com/headgate/headgate/bench/internal/paired"
)

const connections = 32

// way is one through Envoy, by the service that it asks.
type way struct {
	envoy.Route
	name    string
	of      *service // nil if none is asked
	keys    int64    // that a subject has in Redis
	clients []*envoy.Client
}

// throughEnvoy compares what the clients of an Envoy get.
func throughEnvoy(
	scope *paired.Scope, all *services, aims *paired.Aims, rounds int, slice time.Duration,
) (func(), error) {
	ways := []*way{
		{name: "e0  Envoy alone"},
		{name: "ea  + bare, answers at once", of: &all.atOnce},
		{name: "eb  + bare, smallest script", of: &all.bare, keys: 1},
		{name: "ec  + envoyproxy/ratelimit", of: &all.theirs, keys: 1},
		{name: "ed  + headgate serve", of: &all.ours, keys: 1},
	}
	proxy, err := openWays(scope, ways)
	if err != nil {
		return nil, err
	}
	variants := make([]paired.Variant, len(ways))
	for i, w := range ways {
		err := all.counted(scope, w.keys, func() error { return w.clients[0].Get(subjects + 100 + i) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		cpu := proxy.CPU
		if w.of != nil {
			cpu = func() time.Duration { return proxy.CPU() + w.of.CPU() }
		}
		variants[i] = paired.Variant{
			Name: w.name, Callers: connections, ServerCPU: cpu,
			Do: func(caller, n int) error { return w.clients[caller].Get(subject(caller, n)) },
		}
	}
	if err := allAsked(scope, proxy, ways); err != nil {
		return nil, err
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("\nthrough Envoy, %d connections, 1 descriptor, %d rounds of %s; server is Envoy and the service\n",
		connections, rounds, slice)
	paired.Table(variants, s)
	if err := latencies(ways, rounds); err != nil {
		return nil, err
	}
	ratio := paired.Ratio(s[ways[4].name], s[ways[2].name], paired.Throughput)
	return func() { aims.AtLeast("ed ÷ eb, through Envoy, throughput", ratio, 0.93) }, allAsked(scope, proxy, ways)
}

func openWays(scope *paired.Scope, ways []*way) (*envoy.Proxy, error) {
	routes := make([]*envoy.Route, len(ways))
	for i, w := range ways {
		routes[i] = &w.Route
		if w.of != nil {
			w.Service = w.of.address
		}
	}
	proxy, err := envoy.Start(scope, routes)
	if err != nil {
		return nil, err
	}
	for _, w := range ways {
		for range connections {
			c, err := envoy.Dial(scope, w.Listen)
			if err != nil {
				return nil, err
			}
			w.clients = append(w.clients, c)
		}
	}
	return proxy, nil
}

// allAsked says whether Envoy has asked about every request so far.
func allAsked(scope *paired.Scope, proxy *envoy.Proxy, ways []*way) error {
	for i, w := range ways {
		if w.of == nil {
			continue
		}
		sent := 0
		for _, c := range w.clients {
			sent += c.Sent
		}
		if asked, err := proxy.Asked(scope.Context(), i); err != nil {
			return err
		} else if asked != sent {
			return fmt.Errorf("%s: of %d requests Envoy has asked about %d", w.name, sent, asked)
		}
	}
	return nil
}

// latencies are what a client sees that is alone.
func latencies(ways []*way, rounds int) error {
	const calls = 100
	medians := make([][]float64, len(ways))
	for round := range rounds {
		for i, w := range ways {
			took := make([]time.Duration, calls)
			for n := range took {
				start := time.Now()
				if err := w.clients[0].Get(subject(round, n)); err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
				took[n] = time.Since(start)
			}
			slices.Sort(took)
			medians[i] = append(medians[i], took[calls/2].Seconds()*1000)
		}
	}
	fmt.Println("\n1 connection, p50, ms")
	for i, w := range ways {
		m := paired.Of(medians[i])
		fmt.Printf("%-38s %9.3f (%.3f–%.3f)\n", w.name, m.Value, m.Low, m.High)
	}
	return nil
}
