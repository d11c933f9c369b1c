package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// world is two servers with rules in files and one with rules in PostgreSQL, all on one Redis, and two that scrape them: with
// classic histograms and with native ones.
type world struct {
	scope    testing.TB
	deploy   *deploy
	redis    *testenv.Server
	postgres *testenv.Postgres
	nodes    []*node // the first two have files
	watchers []*prometheus
}

const rules = `rules:
  - {id: api, match: {path: /api}, by: [user], limit: 1000000/hour, tiers: {pro: 2000000/hour}, candidate: 1/hour}
  - {id: open, match: {path: /open}, by: [user], limit: 1000000/hour, on_store_failure: allow}
  - {id: closed, match: {path: /closed}, by: [user], limit: 1000000/hour, on_store_failure: deny}
  - {id: small, match: {path: /small}, by: [user], limit: 10/minute}
  - {id: trial, match: {path: /api}, by: [], limit: 10/minute, mode: shadow}
exemptions:
  - {rule: api, user: exempt, reason: tests}
`

func start(ctx context.Context, scope testing.TB, d *deploy) (*world, error) {
	w := &world{scope: scope, deploy: d, redis: testenv.Start(scope, testenv.Redis), postgres: testenv.StartPostgres(scope)}
	program := testenv.BuildHeadgate(scope)
	if err := w.publish(ctx); err != nil {
		return nil, err
	}
	for range 2 {
		if err := w.add(program, "rules: rules.yaml", map[string]string{"rules.yaml": rules}); err != nil {
			return nil, err
		}
	}
	if err := w.add(program, fmt.Sprintf("postgres: {address: %q}\nkeep: kept", w.postgres.URL()), nil); err != nil {
		return nil, err
	}
	return w, nil
}

// watch starts those that scrape. Alerts that are to fire here do so without delay.
func (w *world) watch() error {
	w.deploy.rules.hasten(provoked)
	alerts, err := yaml.Marshal(&w.deploy.rules)
	if err != nil {
		return err
	}
	jobs := map[string][]string{"headgate": {w.nodes[0].Ops, w.nodes[1].Ops}, "headgate-postgres": {w.nodes[2].Ops}}
	for _, kind := range []struct {
		name  string
		flags []string
	}{{"classic", nil}, {"native", []string{"--enable-feature=native-histograms"}}} {
		p, err := startPrometheus(w.scope, kind.name, alerts, jobs, kind.flags...)
		if err != nil {
			return err
		}
		w.watchers = append(w.watchers, p)
	}
	return nil
}

func (w *world) add(program, from string, files map[string]string) error {
	n, err := startNode(w.scope, program, w.redis.Addr(), from, files)
	w.nodes = append(w.nodes, n)
	return err
}

// publish puts a rule into PostgreSQL.
func (w *world) publish(ctx context.Context) error {
	db, err := pgrules.Open(w.postgres.URL(), "")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, _, err := db.Migrate(ctx); err != nil {
		return err
	}
	d, err := pgrules.Define([]byte(`{"id":"api","match":{"path":"/api"},"by":["user"],"limit":"1000000/hour","meter":true}`))
	if err != nil {
		return err
	}
	edits := []pgrules.Edit{{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision}}
	_, err = db.Publish(ctx, pgrules.Who{Name: "ann", Comment: "trying"}, pgrules.Change{Edits: edits})
	return err
}

// usual is what callers ask for, in turn. Nothing is denied while Redis answers.
var usual = []request{
	{"/api", "ann", ""}, {"/api", "ben", "pro"}, {"/open", "cat", ""}, {"/closed", "cat", ""}, {"/api", "exempt", ""}, {"/none", "dan", ""},
}

// pause is between two checks of a node.
const pause = 10 * time.Millisecond

// load asks all nodes at a steady rate until it is stopped.
func (w *world) load(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, n := range w.nodes {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_ = n.check(ctx, usual[i%len(usual)]) // what becomes of it is what Prometheus is to tell
				paired.Sleep(pause)
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// flood has one caller ask far more than it may until it is stopped.
func (w *world) flood(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		requests := make([]request, 50)
		for i := range requests {
			requests[i] = request{"/small", "eve", []string{"", "pro"}[i%2]}
		}
		for ; ctx.Err() == nil; paired.Sleep(100 * time.Millisecond) {
			_ = w.nodes[1].check(ctx, requests...) // as above
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// crowd has so many callers ask once each.
func (w *world) crowd(ctx context.Context, from, to int) error {
	const batch = 1000
	for ; from < to; from += batch {
		requests := make([]request, min(batch, to-from))
		for i := range requests {
			requests[i] = request{"/api", "caller-" + strconv.Itoa(from+i), ""}
		}
		if err := w.nodes[from/batch%2].check(ctx, requests...); err != nil {
			return err
		}
	}
	return nil
}
