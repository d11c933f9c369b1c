package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/bench/internal/timeline"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

const nodeCount = 3

// world is the environment of one fault: a store, nodes that use it and their callers.
type world struct {
	*suite.Scope
	program string // headgate

	// The store, of one of these kinds. address is its address for nodes.
	redis     *testenv.Server
	proxy     *toxiproxy.Proxy // in front of redis, if not nil
	cluster   *testenv.Cluster
	sentinels *testenv.Sentinels
	space     *namespace // of the last node, if not nil
	address   string

	probes []*probe
	prefix []string // of the nodes' commands
	nodes  []*node
	rate   int // of the load
	load   *load

	marks     []timeline.Mark // events of the fault, since the load began
	announced time.Time       // when clients could discover the new primary
	slots     []int           // of the users in a Cluster
	// affected has the users whose counters are on servers that the fault affects; nil means all.
	affected map[int]bool
}

// standalone starts one server with extra config arguments.
func standalone(extra ...string) func(*world) {
	return func(w *world) {
		w.redis = testenv.Start(w, testenv.Redis, extra...)
		w.address = "redis://" + w.redis.Addr()
		w.probes = []*probe{{key: "probe", addresses: []string{w.redis.Addr()}}}
	}
}

// cluster starts three primaries with a replica each, which serve their slots when others are dead: see docs/redis.md.
func cluster(extra ...string) func(*world) {
	return func(w *world) {
		w.cluster = testenv.StartCluster(w, testenv.Redis, append(extra, "--cluster-require-full-coverage", "no")...)
		w.address = "cluster://" + strings.Join(w.cluster.Addrs(), ",")
		names, err := redisstore.Open(w.address) // used for its keys; it must not count as a node
		testenv.NoError(w, err)
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
	}
}

const shards = 3

func probeKey(n int) string { return fmt.Sprintf("probe-%d", n) }

// shardOf returns the number of the primary that initially holds a slot.
func shardOf(slot int) int { return ((slot+1)*shards - 1) / 16384 }

// sentinels starts a primary with two replicas, and three sentinels.
func sentinels(w *world) {
	w.sentinels = testenv.StartSentinels(w, testenv.Redis)
	w.address = fmt.Sprintf("sentinel://%s/%s", strings.Join(w.sentinels.Addrs(), ","), w.sentinels.Master())
	p := &probe{key: "probe"}
	for _, s := range w.sentinels.Servers() {
		p.addresses = append(p.addresses, s.Addr())
	}
	w.probes = []*probe{p}
}

// begin starts the load and the probes at a time, for a fault after another time. stop ends them.
func (w *world) begin(start time.Time, fault time.Duration) (stop func()) {
	w.load = &load{start: start, rate: w.rate, nodes: w.nodes, fault: fault, mixed: w.nodes[0].Node != nil}
	running := []func(context.Context){w.load.run}
	for _, p := range w.probes {
		running = append(running, p.watch)
	}
	return suite.Background(w.Context(), running...)
}

// mark records an event of the fault.
func (w *world) mark(label string) {
	w.marks = append(w.marks, timeline.Mark{At: time.Since(w.load.start), Label: label})
}

// every calls do repeatedly, with a pause of d, for a time.
func (w *world) every(d, length time.Duration, do func()) {
	for end := time.Now().Add(length); time.Now().Before(end) && w.Context().Err() == nil; w.Sleep(d) {
		do()
	}
}
