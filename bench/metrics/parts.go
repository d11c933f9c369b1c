package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
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
func (w *world) quiet(t *suite.Scope, steady time.Duration) {
	for _, p := range w.watchers {
		p.seen(t)
	}
	suite.Sleep(steady)
	for _, p := range w.watchers {
		var alerts, firing, broken []string
		for _, a := range p.rules(t) {
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
		w.line(p.name+": alerts loaded", len(alerts) == want && len(broken) == 0, "%d of %d%s", len(alerts), want, list(broken))
		w.line(p.name+": quiet before the trouble", len(firing) == 0, "%d fire%s", len(firing), list(firing))
	}
}

func (w *world) line(what string, met bool, format string, args ...any) {
	w.report.Line(what, suite.Judged(met, format, args...))
}

// trouble is a killed Redis, a killed PostgreSQL and a bad file at once.
func (w *world) trouble(t *suite.Scope) {
	w.redis.Kill()
	w.postgres.Kill()
	w.nodes[0].Write("rules.yaml", "rules: [{id: bad, limit: 5/often}]\n")
	w.fire(t, "Redis and PostgreSQL killed, a bad rule file", inTrouble)
}

// aftermath is Redis back and empty, other rules at one node, and somebody who asks too much.
func (w *world) aftermath(t *suite.Scope) {
	w.redis.Restart(t)
	w.nodes[0].Write("rules.yaml", strings.ReplaceAll(rules, "2000000", "3000000"))
	defer w.flood(t.Context())()
	w.fire(t, "Redis back, other rules at one node, a flood", afterIt)
}

// crowded is a Redis that may not have as much memory as it uses, and forgets.
func (w *world) crowded(t *suite.Scope) {
	w.redis.Must(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	w.redis.Must(t, "CONFIG", "SET", "maxmemory", "2mb")
	w.fire(t, "Redis evicts", withoutRoom)
}

// end is that of all nodes.
func (w *world) end(t *suite.Scope) {
	for _, n := range w.nodes {
		n.Kill()
	}
	w.fire(t, "all nodes killed", atTheEnd)
}

// fire expects alerts, and texts in them that people can read.
func (w *world) fire(t *suite.Scope, what string, alerts []string) {
	for _, p := range w.watchers {
		firing := p.await(t, alerts, patience)
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
		w.line(p.name+": "+what, len(missing)+len(unreadable) == 0, "%d of %d alerts fire%s%s", len(alerts)-len(missing), len(alerts),
			list(missing), list(unreadable))
	}
}

// panels expects an answer to each query of the dashboard, and to each rule that records: after all that was, with the flood over.
func (w *world) panels(t *suite.Scope) {
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
			samples, err := p.query(t.Context(), q.expr)
			testenv.NoError(t, err)
			if !slices.ContainsFunc(samples, func(s sample) bool { return s.Value[1] != "NaN" }) {
				empty = append(empty, q.panel)
			}
		}
		w.line(p.name+": queries of the dashboard and recorded rules with an answer", len(empty) == 0, "%d of %d%s",
			len(queries)-len(empty), len(queries), list(empty))
		buckets, err := p.query(t.Context(), "headgate_check_duration_seconds_bucket")
		testenv.NoError(t, err)
		w.line(p.name+": histograms are that", len(buckets) == 0 == (p.name == "native"), "%d series of buckets", len(buckets))
	}
}

// tools are promtool's opinions.
func (w *world) tools(t *suite.Scope) {
	for i, n := range w.nodes {
		text, err := n.Metrics(t.Context())
		testenv.NoError(t, err)
		said, err := promtool(t, text, "check", "metrics")
		w.line(fmt.Sprintf("promtool check metrics, node %d", i), err == nil, "%d lines, %s", strings.Count(text, "\n"), said)
	}
	said, err := promtool(t, "", "test", "rules", w.deploy.testsFile)
	w.line("promtool test rules", err == nil, "%s", said)
}

// series expects as many of them for many callers as for few. A slow moment of Redis may make a few more.
func (w *world) series(t *suite.Scope, subjects int) {
	const few, more = 1_000, 12
	count := func() int {
		text, err := w.nodes[0].Metrics(t.Context())
		testenv.NoError(t, err)
		return strings.Count(text, "\nheadgate_")
	}
	w.crowd(t, 0, few)
	before := count()
	w.crowd(t, few, subjects)
	after := count()
	w.line("series of a node", after <= before+more, "%d with %d callers, %d with %d", before, few, after, subjects)
}

// promtool is what it says, in one line.
func promtool(t testing.TB, input string, args ...string) (string, error) {
	command := exec.CommandContext(t.Context(), testenv.Find(t, "promtool"), args...)
	command.Stdin = strings.NewReader(input)
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
