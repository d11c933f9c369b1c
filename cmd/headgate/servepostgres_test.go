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

// A server takes its rules from PostgreSQL, follows them, and goes on without it, also after a restart.
func TestServePostgres(t *testing.T) {
	t.Parallel()
	postgres, redis := testenv.StartPostgres(t), testenv.Start(t, testenv.Redis)
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	writeFile(t, config, fmt.Sprintf(`listen: {http: "127.0.0.1:0", grpc: off, ops: "127.0.0.1:0", admin: off}
redis: {address: "redis://%s"}
postgres: {address: %q}
last_good_file: %s
`, redis.Addr(), postgres.URL(), filepath.Join(dir, "kept")))
	var out strings.Builder
	if err := run(t.Context(), []string{"serve", "--config", config}, &out); err == nil || !strings.Contains(err.Error(), "run headgate migrate") {
		t.Errorf("without tables: %v", err)
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
	check := func(r *running) string {
		_, answer := send(t, http.MethodPost, "http://"+r.at("http")+"/v1/check", `{"attributes": {"ip": "192.0.2.1"}}`)
		return answer
	}
	if answer := check(r); !strings.Contains(answer, `"allowed":true`) {
		t.Errorf("the first: %s", answer)
	}
	if answer := check(r); !strings.Contains(answer, `"allowed":false`) {
		t.Errorf("the second: %s", answer)
	}
	publish(2)
	eventually(t, "the other limit is in force", func() bool { return strings.Contains(check(r), `"allowed":true`) })
	postgres.Kill()
	r.says("not applied: version")
	r.stop()
	<-r.done
	again := serve(t, "--config", config)
	if answer := check(again); !strings.Contains(answer, `"allowed":false`) || !strings.Contains(answer, "login") {
		t.Errorf("without PostgreSQL: %s", answer)
	}
	if _, answer := send(t, http.MethodGet, "http://"+again.at("ops")+"/readyz", ""); !strings.Contains(answer, `"degraded"`) ||
		!strings.Contains(answer, "PostgreSQL at postgres://postgres@127.0.0.1") {
		t.Errorf("/readyz: %s", answer)
	}
}

// What passed is written down when the server stops, at what it cost.
func TestServeMeters(t *testing.T) {
	t.Parallel()
	o := operate(t)
	rules := o.file("rules.yaml", "rules: [{id: api, by: [tenant], limit: 10/hour, cost: {from: header.x-rows}, meter: true}]\n")
	operateJSON[planReport](o, 0, "rules", "apply", rules, "--yes")
	ask := func(rows int) string {
		_, answer := send(t, http.MethodPost, "http://"+o.at("http")+"/v1/check",
			fmt.Sprintf(`{"attributes": {"tenant": "acme", "header.x-rows": "%d"}}`, rows))
		return answer
	}
	eventually(t, "the rule is in force", func() bool { return strings.Contains(ask(11), `"allowed":false`) })
	if answer := ask(7); !strings.Contains(answer, `"allowed":true`) {
		t.Errorf("%s", answer)
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
