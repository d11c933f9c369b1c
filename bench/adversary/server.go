package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/storewrap"
)

// server is a headgate serve process, used over HTTP.
type server struct {
	*fleet.Node
	world   *world
	process int
	// limits has the indexes of the limits of each rule, by rule ID.
	limits map[string][]int
}

// startServers starts servers that share a store and rules, given as limits by rule ID. A rule matches requests whose attribute route
// is its ID. A deadline of 0 means the default.
func (w *world) startServers(n int, redis string, deadline time.Duration, rules map[string][]judge.Limit) (all []*server) {
	limits, text := map[string][]int{}, &strings.Builder{}
	text.WriteString("rules:\n")
	for _, id := range slices.Sorted(maps.Keys(rules)) {
		fmt.Fprintf(text, "  - id: %[1]s\n    match: {route: %[1]s}\n    by: [user]\n    algorithm: %[2]s\n    limits:\n", id, rules[id][0].Algorithm)
		for i, l := range rules[id] {
			limits[id] = append(limits[id], w.limits(l))
			fmt.Fprintf(text, "      l%d: {rate: %d/%dms", i, l.Count, l.Window/1000)
			if l.Clock {
				text.WriteString(", align: clock")
			}
			text.WriteString("}\n")
		}
	}
	config := fmt.Sprintf("redis: {address: %q, deadline: %s}\nnodes: %d", redis, cmp.Or(deadline, storewrap.DefaultDeadline), n)
	for i := range n {
		node := fleet.Start(w, w.headgate(), config, text.String())
		all = append(all, &server{Node: node, world: w, process: 1000 + i, limits: limits})
	}
	w.header.Nodes = max(w.header.Nodes, n)
	return all
}

// check checks a request and records the response.
func (s *server) check(rule, subject string, caller int) judge.Record {
	r := judge.Record{
		Op: judge.OpCheck, Process: s.process, Caller: caller, Subject: subject, Cost: 1, RetryAfter: -1, Limit: s.limits[rule][0],
	}
	if len(s.limits[rule]) > 1 {
		r.Limits = s.limits[rule]
	}
	r.Sent = time.Now().UnixMicro()
	a, err := s.Check(s.world.Context(), map[string]string{"user": subject, "route": rule})
	r.Received = time.Now().UnixMicro()
	if err != nil {
		r.Error = err.Error()
	}
	r.Allowed, r.Path, r.Header = a.Allowed, a.Path, a.Headers.RetryAfter
	if a.RetryAfter != nil {
		r.RetryAfter = int64(*a.RetryAfter*1e6 + 0.5)
	}
	if a.Remaining != nil {
		r.Remaining = *a.Remaining
	}
	if !a.Time.IsZero() {
		r.Store = a.Time.UnixMicro()
	}
	s.world.addRecords(r)
	return r
}
