package main

import (
	"cmp"
	"context"
	"errors"
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

// document is a rule document, and the indexes of the limits of its rules, by rule ID.
type document struct {
	text   string
	limits map[string][]int
}

// document returns a document with rules, given as limits by rule ID, and adds the limits to the header. A rule matches requests
// whose attribute route is its ID. keys are lines with further keys of each rule.
func (w *world) document(rules map[string][]judge.Limit, keys string) document {
	limits, text := map[string][]int{}, &strings.Builder{}
	text.WriteString("rules:\n")
	for _, id := range slices.Sorted(maps.Keys(rules)) {
		fmt.Fprintf(text, "  - id: %[1]s\n    match: {route: %[1]s}\n    by: [user]\n%[2]s", id, keys)
		if delay := rules[id][0].MaxDelay; delay > 0 {
			fmt.Fprintf(text, "    max_delay: %dms\n", delay/1000)
		}
		text.WriteString("    limits:\n")
		for i, l := range rules[id] {
			limits[id] = append(limits[id], w.limits(l))
			fmt.Fprintf(text, "      l%d: {", i)
			if l.AnchorDay > 0 {
				fmt.Fprintf(text, "quota: %d, calendar: month, anchor_day: %d", l.Count, l.AnchorDay)
			} else {
				fmt.Fprintf(text, "rate: %d/%dms, algorithm: %s", l.Count, l.Window/1000, l.Algorithm)
			}
			if l.Clock {
				text.WriteString(", align: clock")
			}
			text.WriteString("}\n")
		}
	}
	return document{text.String(), limits}
}

// startServers starts servers that share a store and rules, given as limits by rule ID. A deadline of 0 means the default.
func (w *world) startServers(n int, redis string, deadline time.Duration, rules map[string][]judge.Limit) []*server {
	return w.serve(n, redis, deadline, w.document(rules, ""))
}

// serve starts servers that share a store and rules.
func (w *world) serve(n int, redis string, deadline time.Duration, rules document) (all []*server) {
	config := fmt.Sprintf("redis: {address: %q, deadline: %s}\nnodes: %d", redis, cmp.Or(deadline, storewrap.DefaultDeadline), n)
	for i := range n {
		node := fleet.Start(w, w.headgate(), config, rules.text)
		all = append(all, &server{Node: node, world: w, process: 1000 + i, limits: rules.limits})
	}
	w.header.Nodes = max(w.header.Nodes, n)
	return all
}

// check checks a request and records the response.
func (s *server) check(rule, subject string, caller int) judge.Record {
	return s.send(rule, map[string]string{"user": subject, "route": rule}, &Command{Subject: subject, Caller: caller, Cost: 1})
}

// send checks a request with these attributes and records the response, as described by a command.
func (s *server) send(rule string, attributes map[string]string, c *Command) judge.Record {
	r := judge.Record{
		Op: judge.OpCheck, Process: s.process, Caller: c.Caller, Subject: c.Subject, Cost: c.Cost, RetryAfter: -1, Limit: s.limits[rule][0],
	}
	if len(s.limits[rule]) > 1 {
		r.Limits = s.limits[rule]
	}
	ctx := s.world.Context()
	if c.Leave > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Leave)
		defer cancel()
	}
	r.Sent = time.Now().UnixMicro()
	a, err := s.Check(ctx, attributes)
	r.Received = time.Now().UnixMicro()
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.Note = judge.NoteLeft
	case err != nil:
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
