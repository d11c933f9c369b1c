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

// node is one Headgate server, or one library client in this process.
type node struct {
	*fleet.Node // nil for a client
	check       func(ctx context.Context, user int) (fleet.Decision, error)
	// log returns the node's log so far.
	log func() string
}

// rules of every node. The windows of the hot subject, which nodes may lease, are clock-aligned. Users have a strict rule, so
// that the store's count is what was admitted; the rule leased covers units that nodes hold.
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

// startNodes starts the servers. The last one runs in the namespace, if there is one.
func startNodes(w *world) {
	for i := range nodeCount {
		options, address := fleet.Options{Prefix: w.prefix}, w.address
		if w.space != nil && i == nodeCount-1 {
			options, address = fleet.Options{Host: w.space.nodeAddress, Prefix: w.space.prefix()}, w.space.redisAddress
		}
		config := fmt.Sprintf("redis: {address: %q}\nrules: rules.yaml\nnodes: %d", address, nodeCount)
		n := &node{Node: options.New(w, w.program, config, map[string]string{"rules.yaml": rules})}
		// Idle connections of a burst are closed: they would look like growth of the server.
		n.Client = http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
			MaxConnsPerHost: maxInFlight, MaxIdleConnsPerHost: maxInFlight, IdleConnTimeout: 5 * time.Second,
		}}
		n.check = func(ctx context.Context, user int) (fleet.Decision, error) { return n.Check(ctx, attributes(user)) }
		n.Start()
		n.log = n.Output
		w.nodes = append(w.nodes, n)
	}
}

// attributes returns the attributes of a subject's requests.
func attributes(user int) map[string]string {
	return map[string]string{"path": pathOf(user), "user": userName(user)}
}

// used returns the store's count of a subject.
func (w *world) used(user int) int64 {
	for range 20 {
		a, err := w.nodes[0].Decide(w.Context(), "/v1/peek", attributes(user))
		testenv.NoError(w, err)
		if a.Path == "store" {
			return a.Limits[0].Count - a.Limits[0].Remaining
		}
		w.Sleep(50 * time.Millisecond)
	}
	w.Fatalf("no answer from the store to a peek at %s", userName(user))
	return 0
}

// metric returns the sum of all series of a name.
func (w *world) metric(n *node, name string) float64 {
	value, err := n.Metric(w.Context(), name)
	testenv.NoError(w, err)
	return value
}

// circuitOpened is the beginning of a node's log line about a circuit that opened.
const circuitOpened = "store shard unavailable; circuit open"

// opened returns how often circuits of the node have opened since a time: in total, and for the worst shard.
func (n *node) opened(since time.Time) (all, worst int) {
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
		worst = max(worst, shards[entry.Shard])
	}
	return all, worst
}
