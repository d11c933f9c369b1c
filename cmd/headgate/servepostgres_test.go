package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// TestServePostgres checks that a server loads its rules from PostgreSQL, follows changes, and keeps working without PostgreSQL, even
// after a restart.
func TestServePostgres(t *testing.T) {
	t.Parallel()
	postgres, redis := testenv.StartPostgres(t), testenv.Start(t, testenv.Redis)
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	writeFile(t, config, fmt.Sprintf(`listen: {http: "127.0.0.1:0", grpc: off, ops: "127.0.0.1:0", admin: off}
redis: {address: "redis://%s", deadline: 1s}
postgres: {address: %q}
last_good_file: %s
`, redis.Addr(), postgres.URL(), filepath.Join(dir, "kept")))
	var out strings.Builder
	if err := run(t.Context(), []string{"serve", "--config", config}, &out); err == nil || !strings.Contains(err.Error(), "run headgate migrate") {
		t.Errorf("without a schema: %v", err)
	}
	db, err := pgrules.Open(postgres.URL(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish := func(limit int) {
		t.Helper()
		d, err := pgrules.Define(fmt.Appendf(nil, `{"id": "login", "by": ["ip"], "limit": "%d/hour", "algorithm": "fixed_window"}`, limit))
		if err == nil {
			_, err = db.Publish(t.Context(), pgrules.Who{Name: "ann"}, pgrules.Change{
				Edits: []pgrules.Edit{{Name: "login", Put: d, Revision: pgrules.AnyRevision}},
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	publish(1)
	r := serve(t, "--config", config)
	check := func(r *testServer) string {
		_, response := send(t, http.MethodPost, "http://"+r.addressOf("http")+"/v1/check", `{"attributes": {"ip": "192.0.2.1"}}`)
		return response
	}
	if response := check(r); !strings.Contains(response, `"allowed":true`) {
		t.Errorf("the first: %s", response)
	}
	if response := check(r); !strings.Contains(response, `"allowed":false`) {
		t.Errorf("the second: %s", response)
	}
	publish(2)
	eventually(t, "the new limit", func() bool { return strings.Contains(check(r), `"allowed":true`) })
	postgres.Kill()
	r.waitForLog("not applied: version")
	r.stop()
	<-r.done
	again := serve(t, "--config", config)
	if response := check(again); !strings.Contains(response, `"allowed":false`) || !strings.Contains(response, "login") {
		t.Errorf("without PostgreSQL: %s", response)
	}
	if _, response := send(t, http.MethodGet, "http://"+again.addressOf("ops")+"/readyz", ""); !strings.Contains(response, `"degraded"`) ||
		!strings.Contains(response, "PostgreSQL at postgres://postgres@127.0.0.1") {
		t.Errorf("/readyz: %s", response)
	}
}

// TestServeWritesUsage checks that the cost of allowed requests is written to PostgreSQL when the server stops.
func TestServeWritesUsage(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	rules := o.file("rules.yaml", "rules: [{id: api, by: [tenant], limit: 10/hour, cost: {from: header.x-rows}, meter: true}]\n")
	operateJSON[planReport](o, 0, "rules", "apply", rules, "--yes")
	check := func(rows int) string {
		_, response := send(t, http.MethodPost, "http://"+o.addressOf("http")+"/v1/check",
			fmt.Sprintf(`{"attributes": {"tenant": "acme", "header.x-rows": "%d"}}`, rows))
		return response
	}
	eventually(t, "the rule", func() bool { return strings.Contains(check(11), `"allowed":false`) })
	if response := check(7); !strings.Contains(response, `"allowed":true`) {
		t.Errorf("%s", response)
	}
	o.stop()
	<-o.done
	db, err := pgrules.Open(o.postgres.URL(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	used, err := db.Usage(t.Context(), pgrules.UsageFilter{First: "2020-01-01", Last: "2100-01-01"}, pgrules.Page{Limit: 10})
	if err != nil || len(used) != 1 || used[0].Rule != "api" || used[0].Attributes["tenant"] != "acme" || used[0].Units != 7 || used[0].Denied < 11 {
		t.Errorf("%+v, %v", used, err)
	}
}
