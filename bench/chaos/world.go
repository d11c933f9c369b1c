package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

const nodeCount = 3

// world is what one fault happens in: a store, nodes that use it and callers of these.
type world struct {
	ctx     context.Context //nolint:containedctx // it is that of one run, which this is
	scope   *paired.Scope
	program string // headgate

	// The store, of which there is one kind. address is for nodes.
	redis     *testenv.Server
	proxy     *toxiproxy.Proxy // before redis, if there is one
	cluster   *testenv.Cluster
	sentinels *testenv.Sentinels
	space     *namespace // of the last node, if it has one
	address   string

	probes []*probe
	prefix []string // of the nodes' commands
	nodes  []*node
	rate   int // of the load
	load   *load

	marks     []mark
	announced time.Time // when clients could learn that the store is elsewhere
	slots     []int     // of the users in a Cluster
	// hit are the users whose counters are on the servers that the fault has hit; nil if on all.
	hit map[int]bool
}

// mark is something that was done to the store.
type mark struct {
	T     float64
	Label string
}

// standalone is one server. extra are more config arguments.
func standalone(extra ...string) func(*world) error {
	return func(w *world) error {
		w.redis = testenv.Start(w.scope, testenv.Redis, extra...)
		w.address = "redis://" + w.redis.Addr()
		w.probes = []*probe{{key: "probe", addresses: []string{w.redis.Addr()}}}
		return nil
	}
}

// behindProxy is one server that nodes reach through a proxy.
func behindProxy(w *world) error {
	if err := standalone(aof...)(w); err != nil {
		return err
	}
	var err error
	w.proxy, err = newProxy(w.scope, w.redis.Addr())
	if err == nil {
		w.address = "redis://" + w.proxy.Listen
	}
	return err
}

// cluster is three primaries with a replica each, which serve what they have when others are dead: see docs/redis.md.
func cluster(extra ...string) func(*world) error {
	return func(w *world) error {
		w.cluster = testenv.StartCluster(w.scope, testenv.Redis, append(extra, "--cluster-require-full-coverage", "no")...)
		w.address = "cluster://" + strings.Join(w.cluster.Addrs(), ",")
		names, err := redisstore.Open(w.address) // which knows the keys
		if err != nil {
			return err
		}
		defer names.Close()
		for user := range subjects {
			key := names.Key(headgate.SubjectOf("user", userName(user)))
			w.slots = append(w.slots, testenv.Slot(key))
		}
		for shard := range shards {
			key := 0
			for shardOf(testenv.Slot(probeKey(key))) != shard {
				key++
			}
			addresses := w.cluster.Addrs()
			servers := []string{addresses[shard], addresses[shard+shards]} // a primary and its replica
			w.probes = append(w.probes, &probe{key: probeKey(key), addresses: servers})
		}
		return nil
	}
}

const shards = 3

func probeKey(n int) string { return fmt.Sprintf("probe-%d", n) }

// shardOf is the number of the primary that holds a slot at first.
func shardOf(slot int) int { return ((slot+1)*shards - 1) / 16384 }

// sentinels is a primary with two replicas, and three sentinels.
func sentinels(w *world) error {
	w.sentinels = testenv.StartSentinels(w.scope, testenv.Redis)
	w.address = fmt.Sprintf("sentinel://%s/%s", strings.Join(w.sentinels.Addrs(), ","), w.sentinels.Master())
	p := &probe{key: "probe"}
	for _, s := range w.sentinels.Servers() {
		p.addresses = append(p.addresses, s.Addr())
	}
	w.probes = []*probe{p}
	return nil
}

// startNodes starts the servers side by side. The last one is in a namespace of its own if there is one.
func (w *world) startNodes() error {
	for i := range nodeCount {
		host, address, prefix := "127.0.0.1", w.address, w.prefix
		if w.space != nil && i == nodeCount-1 {
			host, address, prefix = w.space.nodeAddress, w.space.redisAddress, w.space.prefix()
		}
		n, err := newNode(w.scope, w.program, host, address, prefix...)
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, n)
	}
	errs := make([]error, nodeCount)
	var all sync.WaitGroup
	for i, n := range w.nodes {
		all.Go(func() { errs[i] = n.start(w.scope.Context()) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// begin sends load and probes from a time on, for a fault that happens after another. The function that it returns ends them.
func (w *world) begin(start time.Time, fault time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	w.load = &load{start: start, rate: w.rate, nodes: w.nodes, fault: fault, mixed: w.nodes[0].cmd != nil}
	var all sync.WaitGroup
	all.Go(func() { w.load.run(ctx) })
	for _, p := range w.probes {
		all.Go(func() { p.watch(ctx) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// mark notes what is being done.
func (w *world) mark(label string) {
	w.marks = append(w.marks, mark{time.Since(w.load.start).Seconds(), label})
}

// hold lets a fault last.
func (w *world) hold() { w.sleep(faultLength) }

func (w *world) sleep(d time.Duration) { sleepUntil(w.ctx, time.Now().Add(d)) }

// every does something again and again for a time.
func (w *world) every(d, length time.Duration, do func() error) error {
	for end := time.Now().Add(length); time.Now().Before(end) && w.ctx.Err() == nil; w.sleep(d) {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
