package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/promapi"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// The alerts that are expected, by phase. The other alerts take too long to fire; promtool's tests cover them.
var (
	duringFaults = []string{
		"HeadgateStoreErrors", "HeadgateFallback", "HeadgateRulesBad", "HeadgateRulesBehind",
		"HeadgateAvailabilityFastBurn", "HeadgateAvailabilitySlowBurn",
	}
	afterRestart   = []string{"HeadgateFailover", "HeadgateRulesDiffer", "HeadgateDenialSpike"}
	duringEviction = []string{"HeadgateStoreEvicts"}
	afterKill      = []string{"HeadgateDown", "HeadgateNodeDown"}
	expectedAlerts = slices.Concat(duringFaults, afterRestart, duringEviction, afterKill)
)

// patience is how long an alert may take to fire: rules in PostgreSQL count as behind after ten seconds.
const patience = 30 * time.Second

// quiet expects all rules to be loaded and no alert to fire, a steady time after the first scrapes.
func (w *world) quiet(t *suite.Scope, steady time.Duration) {
	for _, p := range w.prometheuses {
		p.awaitScrapes(t)
	}
	suite.Sleep(steady)
	for _, p := range w.prometheuses {
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
		w.addLine(p.name+": alerts loaded", len(alerts) == want && len(broken) == 0, "%d of %d%s", len(alerts), want, list(broken))
		w.addLine(p.name+": quiet before the faults", len(firing) == 0, "%d fire%s", len(firing), list(firing))
	}
}

func (w *world) addLine(what string, met bool, format string, args ...any) {
	w.report.Line(what, suite.Judged(met, format, args...))
}

// killServers kills Redis and PostgreSQL and writes an invalid rule file.
func (w *world) killServers(t *suite.Scope) {
	w.redis.Kill()
	w.postgres.Kill()
	w.nodes[0].Write("rules.yaml", "rules: [{id: bad, limit: 5/often}]\n")
	w.fire(t, "Redis and PostgreSQL killed, an invalid rule file", duringFaults)
}

// restartRedis restarts Redis without data, changes the rules of one node and floods it from one client.
func (w *world) restartRedis(t *suite.Scope) {
	w.redis.Restart(t)
	w.nodes[0].Write("rules.yaml", strings.ReplaceAll(rules, "2000000", "3000000"))
	defer w.flood(t.Context())()
	w.fire(t, "Redis restarted, different rules at one node, a flood", afterRestart)
}

// evictKeys lowers the memory limit of Redis below its use, so that it evicts keys.
func (w *world) evictKeys(t *suite.Scope) {
	w.redis.Must(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	w.redis.Must(t, "CONFIG", "SET", "maxmemory", "2mb")
	w.fire(t, "Redis evicts", duringEviction)
}

// killNodes kills all nodes.
func (w *world) killNodes(t *suite.Scope) {
	for _, n := range w.nodes {
		n.Kill()
	}
	w.fire(t, "all nodes killed", afterKill)
}

// fire expects alerts to fire, with rendered annotations.
func (w *world) fire(t *suite.Scope, what string, alerts []string) {
	for _, p := range w.prometheuses {
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
		w.addLine(p.name+": "+what, len(missing)+len(unreadable) == 0, "%d of %d alerts fire%s%s", len(alerts)-len(missing), len(alerts),
			list(missing), list(unreadable))
	}
}

// panels expects data for each query of the dashboard and for each recording rule, after the faults and the flood. Servers of a single region
// have no metrics about regions; TestMetricsExist checks that others have them.
func (w *world) panels(t *suite.Scope) {
	queries := slices.DeleteFunc(w.deploy.dashboard.Queries(), func(q promapi.Query) bool { return strings.Contains(q.Expr, "headgate_region_") })
	for _, g := range w.deploy.rules.Groups {
		for _, rule := range g.Rules {
			if rule.Record != "" {
				queries = append(queries, promapi.Query{Name: "rule " + rule.Record, Expr: rule.Record})
			}
		}
	}
	for _, p := range w.prometheuses {
		empty, err := p.Empty(t.Context(), queries)
		testenv.NoError(t, err)
		w.addLine(p.name+": dashboard queries and recording rules with data", len(empty) == 0, "%d of %d%s",
			len(queries)-len(empty), len(queries), list(empty))
		buckets, err := p.Query(t.Context(), "headgate_check_duration_seconds_bucket")
		testenv.NoError(t, err)
		w.addLine(p.name+": histograms of this type", len(buckets) == 0 == (p.name == "native"), "%d series of buckets", len(buckets))
	}
}

// tools runs promtool's checks.
func (w *world) tools(t *suite.Scope) {
	for i, n := range w.nodes {
		text, err := n.Metrics(t.Context())
		testenv.NoError(t, err)
		output, err := promtool(t, text, "check", "metrics")
		w.addLine(fmt.Sprintf("promtool check metrics, node %d", i), err == nil, "%d lines, %s", strings.Count(text, "\n"), output)
	}
	output, err := promtool(t, "", "test", "rules", w.deploy.testsFile)
	w.addLine("promtool test rules", err == nil, "%s", output)
}

// series expects as many series for many callers as for few. Slow responses of Redis may add a few.
func (w *world) series(t *suite.Scope, subjects int) {
	const few, more = 1_000, 12
	count := func() int {
		text, err := w.nodes[0].Metrics(t.Context())
		testenv.NoError(t, err)
		return strings.Count(text, "\nheadgate_")
	}
	w.sendMany(t, 0, few)
	before := count()
	w.sendMany(t, few, subjects)
	after := count()
	w.addLine("series of a node", after <= before+more, "%d with %d callers, %d with %d", before, few, after, subjects)
}

// promtool runs promtool and returns its output in one line.
func promtool(t testing.TB, input string, args ...string) (string, error) {
	command := exec.CommandContext(t.Context(), testenv.Find(t, "promtool"), args...)
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	output := strings.Join(strings.Fields(string(out)), " ")
	if output == "" && err == nil {
		output = "no findings"
	}
	return output, err
}

// list returns things in parentheses, or "" if there are none.
func list(things []string) string {
	if len(things) == 0 {
		return ""
	}
	return " (" + strings.Join(things, ", ") + ")"
}
