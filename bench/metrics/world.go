package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// world is two servers with rules in files and one with rules in PostgreSQL, all on one Redis, and two Prometheus servers that scrape
// them: with classic histograms and with native ones.
type world struct {
	scope        testing.TB
	deploy       *deploy
	redis        *testenv.Server
	postgres     *testenv.Postgres
	nodes        []*fleet.Node // the first two have rule files
	prometheuses []*prometheus
	report       *suite.Report
}

const rules = `rules:
  - {id: api, match: {path: /api}, by: [user], limit: 1000000/hour, tiers: {pro: 2000000/hour}, candidate: 1/hour}
  - {id: open, match: {path: /open}, by: [user], limit: 1000000/hour, on_store_failure: allow}
  - {id: closed, match: {path: /closed}, by: [user], limit: 1000000/hour, on_store_failure: deny}
  - {id: small, match: {path: /small}, by: [user], limit: 10/minute}
  - {id: trial, match: {path: /api}, by: [], limit: 10/minute, mode: shadow}
  - {id: exports, match: {path: /exports}, by: [user], limit: 1000 concurrent}
exemptions:
  - {rule: api, user: exempt, reason: tests}
`

func start(scope testing.TB, d *deploy) *world {
	w := &world{scope: scope, deploy: d, redis: testenv.Start(scope, testenv.Redis), postgres: testenv.StartPostgres(scope)}
	program := testenv.BuildHeadgate(scope)
	w.publish()
	// The deadline is a second: alerts must not fire because a busy machine pauses for 10 ms.
	redis := fmt.Sprintf("redis: {address: \"redis://%s\", deadline: 1s}\n", w.redis.Addr())
	files, database := "rules: rules.yaml", fmt.Sprintf("postgres: {address: %q}\nlast_good_file: kept", w.postgres.URL())
	for _, from := range []string{files, files, database} {
		n := fleet.New(scope, program, redis+from, map[string]string{"rules.yaml": rules})
		n.Start()
		w.nodes = append(w.nodes, n)
	}
	return w
}

// startPrometheuses starts the Prometheus servers. The expected alerts fire without delay.
func (w *world) startPrometheuses() {
	w.deploy.rules.removeDelays(expectedAlerts)
	alerts, err := yaml.Marshal(&w.deploy.rules)
	testenv.NoError(w.scope, err)
	jobs := map[string][]string{"headgate": {w.nodes[0].Ops, w.nodes[1].Ops}, "headgate-postgres": {w.nodes[2].Ops}}
	w.prometheuses = []*prometheus{
		startPrometheus(w.scope, "classic", string(alerts), jobs),
		startPrometheus(w.scope, "native", string(alerts), jobs, "--enable-feature=native-histograms"),
	}
}

// publish publishes a rule in PostgreSQL.
func (w *world) publish() {
	db, err := pgrules.Open(w.postgres.URL(), "")
	testenv.NoError(w.scope, err)
	defer db.Close()
	_, _, err = db.Migrate(w.scope.Context())
	testenv.NoError(w.scope, err)
	d, err := pgrules.Define([]byte(`{"id":"api","match":{"path":"/api"},"by":["user"],"limit":"1000000/hour","meter":true}`))
	testenv.NoError(w.scope, err)
	edits := []pgrules.Edit{{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision}}
	_, err = db.Publish(w.scope.Context(), pgrules.Who{Name: "ann", Comment: "test"}, pgrules.Change{Edits: edits})
	testenv.NoError(w.scope, err)
}

// request is a request to check. An empty tier means none.
type request struct{ path, user, tier string }

// check checks requests at a node, as a batch if there are several.
func check(ctx context.Context, n *fleet.Node, requests ...request) error {
	texts := make([]string, len(requests))
	for i, r := range requests {
		texts[i] = fmt.Sprintf(`{"attributes":{"path":%q,"user":%q,"tier":%q}}`, r.path, r.user, r.tier)
	}
	path, body := "/v1/check", texts[0]
	if len(texts) > 1 {
		path, body = "/v1/check/batch", `{"requests":[`+strings.Join(texts, ",")+`]}`
	}
	_, err := n.Fetch(ctx, http.MethodPost, n.HTTP, path, body)
	return err
}

// export begins a request at a node and ends it.
func export(ctx context.Context, n *fleet.Node) error {
	text, err := n.Fetch(ctx, http.MethodPost, n.HTTP, "/v1/check", `{"attributes":{"path":"/exports","user":"ann"},"begin":true}`)
	if err != nil {
		return err
	}
	var begun struct{ Slots string }
	if err := json.Unmarshal(text, &begun); err != nil || begun.Slots == "" {
		return err
	}
	_, err = n.Fetch(ctx, http.MethodPost, n.HTTP, "/v1/release", fmt.Sprintf(`{"slots":%q}`, begun.Slots))
	return err
}

// usualRequests are the requests of the load, in turn. None is denied while Redis is available.
var usualRequests = []request{
	{"/api", "ann", ""}, {"/api", "ben", "pro"}, {"/open", "cat", ""}, {"/closed", "cat", ""}, {"/api", "exempt", ""}, {"/none", "dan", ""},
}

// pause is the time between two checks at a node.
const pause = 10 * time.Millisecond

// load sends checks to all nodes at a steady rate until it is stopped. It ignores errors: Prometheus must show them.
func (w *world) load(ctx context.Context) (stop func()) {
	var callers []func(context.Context)
	for _, n := range w.nodes {
		callers = append(callers, func(ctx context.Context) {
			for i := 0; ctx.Err() == nil; i++ {
				_ = check(ctx, n, usualRequests[i%len(usualRequests)])
				_ = export(ctx, n)
				suite.Sleep(pause)
			}
		})
	}
	return suite.Background(ctx, callers...)
}

// flood has one caller send far more than its limit until it is stopped.
func (w *world) flood(ctx context.Context) (stop func()) {
	requests := make([]request, 50)
	for i := range requests {
		requests[i] = request{"/small", "eve", []string{"", "pro"}[i%2]}
	}
	return suite.Background(ctx, func(ctx context.Context) {
		for ; ctx.Err() == nil; suite.Sleep(100 * time.Millisecond) {
			_ = check(ctx, w.nodes[1], requests...) // as in load
		}
	})
}

// sendMany sends one check for each of many callers.
func (w *world) sendMany(t *suite.Scope, from, to int) {
	const batch = 1000
	for ; from < to; from += batch {
		requests := make([]request, min(batch, to-from))
		for i := range requests {
			requests[i] = request{"/api", "caller-" + strconv.Itoa(from+i), ""}
		}
		testenv.NoError(t, check(t.Context(), w.nodes[from/batch%2], requests...))
	}
}
