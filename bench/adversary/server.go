package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/bench/internal/served"
	"github.com/headgate/headgate/storewrap"
)

// server is headgate serve in a process of its own, asked over HTTP.
type server struct {
	*served.Node
	world   *world
	process int
	// limits are the indexes of the limits of each rule, by its id.
	limits map[string][]int
}

// decision is what the server answers.
type decision struct {
	Allowed    bool      `json:"allowed"`
	RetryAfter *float64  `json:"retry_after"`
	Remaining  *int64    `json:"remaining"`
	Path       string    `json:"path"`
	Time       time.Time `json:"time"`
	Headers    struct {
		RetryAfter string `json:"Retry-After"`
	} `json:"headers"`
}

// startServers starts servers that share a store and rules. Rules match by the attribute route, which is their id.
// A deadline of 0 is the default.
func (w *world) startServers(n int, redis, rules string, deadline time.Duration, limits map[string][]int) ([]*server, error) {
	program := w.headgate()
	var all []*server
	for i := range n {
		config := fmt.Sprintf("redis: {address: %q, deadline: %s}\nrules: rules.yaml\nnodes: %d", redis,
			cmp.Or(deadline, storewrap.DefaultDeadline), n)
		node, err := served.New(&w.scope, program, config, 5*time.Second)
		if err == nil {
			err = node.Write("rules.yaml", rules)
		}
		if err != nil {
			return nil, err
		}
		node.Start()
		all = append(all, &server{Node: node, world: w, process: 1000 + i, limits: limits})
	}
	w.header.Nodes = max(w.header.Nodes, n)
	return all, nil
}

// check asks whether a request passes, and records the answer.
func (s *server) check(rule, subject string, caller int) judge.Record {
	r := judge.Record{
		Op: judge.OpCheck, Process: s.process, Caller: caller, Subject: subject, Cost: 1, RetryAfter: -1, Limit: s.limits[rule][0],
	}
	if len(s.limits[rule]) > 1 {
		r.Limits = s.limits[rule]
	}
	body := fmt.Sprintf(`{"attributes":{"user":%q,"route":%q}}`, subject, rule)
	var d decision
	r.Sent = time.Now().UnixMicro()
	text, err := s.Ask(s.world.ctx, http.MethodPost, s.HTTP, "/v1/check", body)
	r.Answered = time.Now().UnixMicro()
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Allowed, r.Path = d.Allowed, d.Path
	if d.RetryAfter != nil {
		r.RetryAfter = int64(*d.RetryAfter*1e6 + 0.5)
	}
	if d.Remaining != nil {
		r.Remaining = *d.Remaining
	}
	if !d.Time.IsZero() {
		r.Store = d.Time.UnixMicro()
	}
	r.Header, _ = strconv.ParseInt(d.Headers.RetryAfter, 10, 64)
	s.world.keep(r)
	return r
}
