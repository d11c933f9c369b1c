package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// What happens in this world, by when. The other alerts take longer than we have; promtool's tests are about them too.
var (
	inTrouble = []string{
		"HeadgateStoreErrors", "HeadgateFallback", "HeadgateRulesBad", "HeadgateRulesBehind",
		"HeadgateAvailabilityFastBurn", "HeadgateAvailabilitySlowBurn",
	}
	afterIt     = []string{"HeadgateFailover", "HeadgateRulesDiffer", "HeadgateDenialSpike"}
	withoutRoom = []string{"HeadgateRedisEvicts"}
	atTheEnd    = []string{"HeadgateDown", "HeadgateNodeDown"}
	provoked    = slices.Concat(inTrouble, afterIt, withoutRoom, atTheEnd)
)

// patience is how long an alert may take: rules in PostgreSQL are behind after ten seconds.
const patience = 30 * time.Second

// quiet expects all rules to be loaded and none to fire, some time after there is something to judge by.
func (w *world) quiet(ctx context.Context, r *report, steady time.Duration) error {
	for _, p := range w.watchers {
		if err := p.seen(ctx); err != nil {
			return err
		}
	}
	paired.Sleep(steady)
	for _, p := range w.watchers {
		all, err := p.rules(ctx)
		if err != nil {
			return err
		}
		var alerts, firing, broken []string
		for _, a := range all {
			if a.Type == "alerting" {
				alerts = append(alerts, a.Name)
			}
			if a.State == "firing" {
				firing = append(firing, a.Name)
			}
			if a.Health != "ok" {
				broken = append(broken, a.Name+": "+a.LastError)
			}
		}
		want := len(w.deploy.rules.alerts())
		r.line(p.name+": alerts loaded", len(alerts) == want && len(broken) == 0, "%d of %d%s", len(alerts), want, list(broken))
		r.line(p.name+": quiet before the trouble", len(firing) == 0, "%d fire%s", len(firing), list(firing))
	}
	return nil
}

// trouble is a killed Redis, a killed PostgreSQL and a bad file at once.
func (w *world) trouble(ctx context.Context, r *report) error {
	w.redis.Kill()
	w.postgres.Kill()
	if err := w.nodes[0].Write("rules.yaml", "rules: [{id: bad, limit: 5/often}]\n"); err != nil {
		return err
	}
	return w.fire(ctx, r, "Redis and PostgreSQL killed, a bad rule file", inTrouble)
}

// aftermath is Redis back and empty, other rules at one node, and somebody who asks too much.
func (w *world) aftermath(ctx context.Context, r *report) error {
	w.redis.Restart(w.scope)
	if err := w.nodes[0].Write("rules.yaml", strings.ReplaceAll(rules, "2000000", "3000000")); err != nil {
		return err
	}
	defer w.flood(ctx)()
	return w.fire(ctx, r, "Redis back, other rules at one node, a flood", afterIt)
}

// crowded is a Redis that may not have as much memory as it uses, and forgets.
func (w *world) crowded(ctx context.Context, r *report) error {
	w.redis.Must(w.scope, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	w.redis.Must(w.scope, "CONFIG", "SET", "maxmemory", "2mb")
	return w.fire(ctx, r, "Redis evicts", withoutRoom)
}

// end is that of all nodes.
func (w *world) end(ctx context.Context, r *report) error {
	for _, n := range w.nodes {
		n.Kill()
	}
	return w.fire(ctx, r, "all nodes killed", atTheEnd)
}

// fire expects alerts, and texts in them that people can read.
func (w *world) fire(ctx context.Context, r *report, what string, alerts []string) error {
	for _, p := range w.watchers {
		firing, err := p.await(ctx, alerts, patience)
		if err != nil {
			return err
		}
		var missing, unreadable []string
		for _, name := range alerts {
			a, ok := firing[name]
			if !ok {
				missing = append(missing, name)
			}
			for _, instance := range a.Alerts {
				for key, text := range instance.Annotations {
					if strings.Contains(text, "<no value>") || strings.Contains(text, "<error") || strings.Contains(text, "{{") {
						unreadable = append(unreadable, name+" "+key+": "+text)
					}
				}
			}
		}
		r.line(p.name+": "+what, len(missing)+len(unreadable) == 0, "%d of %d alerts fire%s%s", len(alerts)-len(missing), len(alerts),
			list(missing), list(unreadable))
	}
	return nil
}

// panels expects an answer to each query of the dashboard, and to each rule that records: after all that was, with the flood over.
func (w *world) panels(ctx context.Context, r *report) error {
	queries := w.deploy.dashboard.queries()
	for _, g := range w.deploy.rules.Groups {
		for _, rule := range g.Rules {
			if rule.Record != "" {
				queries = append(queries, query{"rule " + rule.Record, rule.Record})
			}
		}
	}
	for _, p := range w.watchers {
		var empty []string
		for _, q := range queries {
			samples, err := p.query(ctx, q.expr)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(samples, func(s sample) bool { return s.number() }) {
				empty = append(empty, q.panel)
			}
		}
		r.line(p.name+": queries of the dashboard and recorded rules with an answer", len(empty) == 0, "%d of %d%s",
			len(queries)-len(empty), len(queries), list(empty))
		buckets, err := p.query(ctx, "headgate_check_duration_seconds_bucket")
		if err != nil {
			return err
		}
		r.line(p.name+": histograms are that", len(buckets) == 0 == (p.name == "native"), "%d series of buckets", len(buckets))
	}
	return nil
}

// tools are promtool's opinions.
func (w *world) tools(ctx context.Context, r *report) error {
	for i, n := range w.nodes {
		text, err := n.metrics(ctx)
		if err != nil {
			return err
		}
		said, err := promtool(ctx, w.scope, text, "check", "metrics")
		r.line(fmt.Sprintf("promtool check metrics, node %d", i), err == nil, "%d lines, %s", bytes.Count(text, []byte("\n")), said)
	}
	said, err := promtool(ctx, w.scope, nil, "test", "rules", w.deploy.testsFile)
	r.line("promtool test rules", err == nil, "%s", said)
	return nil
}

// series expects as many of them for many callers as for few. A slow moment of Redis may make a few more.
func (w *world) series(ctx context.Context, r *report, subjects int) error {
	const few, more = 1_000, 12
	if err := w.crowd(ctx, 0, few); err != nil {
		return err
	}
	before, err := w.nodes[0].series(ctx)
	if err != nil {
		return err
	}
	if err := w.crowd(ctx, few, subjects); err != nil {
		return err
	}
	after, err := w.nodes[0].series(ctx)
	r.line("series of a node", err == nil && after <= before+more, "%d with %d callers, %d with %d", before, few, after, subjects)
	return err
}

// promtool is what it says, in one line.
func promtool(ctx context.Context, t testing.TB, input []byte, args ...string) (string, error) {
	command := exec.CommandContext(ctx, testenv.Find(t, "promtool"), args...)
	command.Stdin = bytes.NewReader(input)
	out, err := command.CombinedOutput()
	said := strings.Join(strings.Fields(string(out)), " ")
	if said == "" && err == nil {
		said = "no complaint"
	}
	return said, err
}

// list is what comes after a number of things.
func list(things []string) string {
	if len(things) == 0 {
		return ""
	}
	return " (" + strings.Join(things, ", ") + ")"
}
