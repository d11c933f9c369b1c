package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
)

// node is one server of ours, or in a cold start one client in this process.
type node struct {
	*fleet.Node // nil if it is a client
	ask         func(ctx context.Context, user int) (fleet.Decision, error)
	// log is what it has printed so far.
	log func() string
}

// rules of every node. The clock tells the windows of the hot subject, of which nodes may lease units. Users are under a strict
// rule, so that what the store has counted of them is what was admitted; leased is for the units that nodes hold meanwhile.
var rules = fmt.Sprintf(`rules:
  - id: hot
    match: {path: /hot}
    by: [user]
    algorithm: fixed_window
    limit: {rate: %d/%s, align: clock}
  - id: spread
    match: {path: /spread}
    by: [user]
    algorithm: fixed_window
    limit: 1000000/hour
    strict: true
  - id: leased
    match: {path: /leased}
    by: [user]
    algorithm: fixed_window
    limit: 1000000/hour
  - id: bucket
    match: {path: /bucket}
    by: [user]
    algorithm: token_bucket
    limit: %d/%s
`, limit, window, bucketSize, bucketRefill)

// startNodes starts the servers. The last one is in a namespace of its own if there is one.
func startNodes(w *world) {
	for i := range nodeCount {
		options, address := fleet.Options{Prefix: w.prefix}, w.address
		if w.space != nil && i == nodeCount-1 {
			options, address = fleet.Options{Host: w.space.nodeAddress, Prefix: w.space.prefix()}, w.space.redisAddress
		}
		config := fmt.Sprintf("redis: {address: %q}\nrules: rules.yaml\nnodes: %d", address, nodeCount)
		n := &node{Node: options.New(w, w.program, config, map[string]string{"rules.yaml": rules})}
		// Connections that one bad moment has made are not kept: they would be taken for growth of the server.
		n.Client = http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
			MaxConnsPerHost: room, MaxIdleConnsPerHost: room, IdleConnTimeout: 5 * time.Second,
		}}
		n.ask = func(ctx context.Context, user int) (fleet.Decision, error) { return n.Check(ctx, attributes(user)) }
		n.Start()
		n.log = n.Output
		w.nodes = append(w.nodes, n)
	}
}

// attributes are those of a subject's requests.
func attributes(user int) map[string]string {
	return map[string]string{"path": pathOf(user), "user": userName(user)}
}

// used returns what the store has counted for a subject.
func (w *world) used(user int) int64 {
	for range 20 {
		a, err := w.nodes[0].Decide(w.Context(), "/v1/peek", attributes(user))
		testenv.NoError(w, err)
		if a.Path == "store" {
			return a.Limits[0].Count - a.Limits[0].Remaining
		}
		w.Sleep(50 * time.Millisecond)
	}
	w.Fatalf("the store does not say what %s has used", userName(user))
	return 0
}

// metric is the sum of all series of a name.
func (w *world) metric(n *node, name string) float64 {
	value, err := n.Metric(w.Context(), name)
	testenv.NoError(w, err)
	return value
}

// circuitOpened begins the log line of a node that stops asking a shard of the store.
const circuitOpened = "store shard unavailable; circuit open"

// opened returns how often circuits of the node have opened since a time: of all shards, and most of one.
func (n *node) opened(since time.Time) (all, most int) {
	shards := map[int]int{}
	for line := range strings.Lines(n.log()) {
		var entry struct {
			Time  time.Time
			Msg   string
			Shard int
		}
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Time.Before(since) || !strings.HasPrefix(entry.Msg, circuitOpened) {
			continue
		}
		all++
		shards[entry.Shard]++
		most = max(most, shards[entry.Shard])
	}
	return all, most
}
