package pgrules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
	"github.com/headgate/headgate/internal/testenv"
)

// planNode is a node of an executed plan, as logged by auto_explain.
type planNode struct {
	Rows         float64    `json:"Actual Rows"` // per loop, like the next two
	Filtered     float64    `json:"Rows Removed by Filter"`
	FilteredJoin float64    `json:"Rows Removed by Join Filter"`
	Loops        float64    `json:"Actual Loops"`
	Index        string     `json:"Index Name"`
	Nodes        []planNode `json:"Plans"`
}

// rows returns how many rows the node and its children have read.
func (n *planNode) rows() float64 {
	sum := n.Loops * (n.Rows + n.Filtered + n.FilteredJoin)
	for i := range n.Nodes {
		sum += n.Nodes[i].rows()
	}
	return sum
}

// indexes used adds the indexes that the node and its children use.
func (n *planNode) indexes(to map[string]bool) {
	if n.Index != "" {
		to[n.Index] = true
	}
	for i := range n.Nodes {
		n.Nodes[i].indexes(to)
	}
}

// watched is a connection that counts the work of PostgreSQL for its statements, including those in triggers.
type watched struct {
	t    *testing.T
	conn *pgx.Conn
	rows float64         // rows read
	used map[string]bool // indexes used
}

func watch(t *testing.T, server *testenv.Postgres) *watched {
	t.Helper()
	w := &watched{t: t, used: map[string]bool{}}
	config, err := pgx.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		_, text, found := strings.Cut(notice.Message, "plan:\n")
		var logged struct{ Plan planNode }
		if err := json.Unmarshal([]byte(text), &logged); !found || err != nil {
			return
		}
		w.rows += logged.Plan.rows()
		logged.Plan.indexes(w.used)
	}
	if w.conn, err = pgx.ConnectConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.conn.Close(context.Background()) })
	for _, s := range []string{
		"LOAD 'auto_explain'", "SET auto_explain.log_min_duration = 0", "SET auto_explain.log_nested_statements = on",
		"SET auto_explain.log_analyze = on", "SET auto_explain.log_timing = off",
		"SET auto_explain.log_format = json", "SET auto_explain.log_level = notice",
	} {
		if _, err := w.conn.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// exec runs a statement, and returns how many rows PostgreSQL has read.
func (w *watched) exec(statement string) float64 {
	w.t.Helper()
	w.rows = 0
	if _, err := w.conn.Exec(w.t.Context(), statement); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
	return w.rows
}

// All changes wait for the change that holds the lock on the state, so the cost of a change must be linear in its rows, whatever was
// changed before in the same session, since plans are cached.
func TestLargeChangesAreLinear(t *testing.T) {
	t.Parallel()
	const some, more = 100, 400
	for _, table := range []struct{ name, insert, update string }{
		{
			"rate_limit_rules", `INSERT INTO rate_limit_rules (name, scope, algorithm, max_requests, window_seconds)
				SELECT 'rule-%[1]d-' || i, 'global', 'token_bucket', 10, 60 FROM generate_series(1, %[1]d) i`,
			"UPDATE rate_limit_rules SET max_requests = max_requests + 1",
		},
		{
			"rate_limit_overrides", `INSERT INTO rate_limit_overrides AS o (rule_id, subject, limit_text)
				SELECT (SELECT min(id) FROM rate_limit_rules), '{"user":"u' || i || '"}', '5/minute' FROM generate_series(1, %d) i
				ON CONFLICT (rule_id, subject, limit_name) DO UPDATE SET limit_text = excluded.limit_text`,
			"UPDATE rate_limit_overrides SET limit_text = '6/minute'",
		},
		{
			"rate_limit_exemptions", `INSERT INTO rate_limit_exemptions (rule_id, subject_type, subject_value)
				SELECT (SELECT min(id) FROM rate_limit_rules), 'user', 'u' || i FROM generate_series(1, %d) i
				ON CONFLICT (rule_id, subject_type, subject_value) DO UPDATE SET reason = 'again'`,
			"UPDATE rate_limit_exemptions SET reason = 'why'",
		},
	} {
		t.Run(table.name, func(t *testing.T) {
			t.Parallel()
			_, server := newDB(t)
			w := watch(t, server)
			w.exec(fmt.Sprintf(flatRule, "one"))
			w.exec(table.update + " WHERE false") // the plan of an empty change is cached
			rows := map[string]float64{}
			for _, n := range []int{some, more} {
				insert := fmt.Sprintf(table.insert, n)
				for _, s := range []struct{ what, statement string }{{"insert", insert}, {"update", table.update}} {
					what := fmt.Sprintf("%s %d", s.what, n)
					rows[what] = w.exec(s.statement)
					t.Logf("%s: %.0f rows read", what, rows[what])
					if rows[what] < float64(n) {
						t.Fatal("plans are not logged")
					}
				}
			}
			for _, what := range []string{"insert", "update"} {
				if growth := rows[what+" 400"] / rows[what+" 100"]; growth > 6 {
					t.Errorf("%s: four times the rows take %.1f times the work", what, growth)
				}
			}
			if ratio := rows["update 400"] / rows["insert 400"]; ratio > 3 {
				t.Errorf("a change of all takes %.1f times the work of storing them", ratio)
			}
		})
	}
}

// The cost of a tenant's queries depends on the tenant's rows, not on those of other tenants.
func TestTenantsAreFoundByIndex(t *testing.T) {
	t.Parallel()
	_, server := newDB(t)
	// 300 tenants with ten rules each and ten overrides per rule, and one tenant with one rule and one override.
	err := sql(t, server, `INSERT INTO rate_limit_rules (name, scope, algorithm, max_requests, window_seconds, owner, tenant_id)
			SELECT 'r' || i, 'tenant', 'token_bucket', 10, 60, 't' || i / 10, 't' || i / 10 FROM generate_series(1, 3000) i
			UNION ALL SELECT 'own', 'tenant', 'token_bucket', 10, 60, 'acme', 'acme'`,
		`INSERT INTO rate_limit_overrides (rule_id, subject, limit_text)
			SELECT id, '{"tenant":"' || owner || '","user":"u' || i || '"}', '5/minute' FROM rate_limit_rules, generate_series(1, 10) i
			WHERE owner <> 'acme' OR i = 1`,
		`INSERT INTO rate_limit_exemptions (rule_id, subject_type, subject_value)
			SELECT id, 'user', 'u' || i FROM rate_limit_rules, generate_series(1, 3) i WHERE owner <> 'acme' OR i = 1`)
	if err == nil {
		err = sql(t, server, "ANALYZE")
	}
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, server)
	q, acme := pgdb.New(w.conn), "acme"
	for _, query := range []struct {
		index string
		run   func() (int, error)
	}{
		{"rate_limit_rules_owner_idx", func() (int, error) {
			all, err := q.ListRules(t.Context(), pgdb.ListRulesParams{Owner: &acme, MaxRows: 100})
			return len(all), err
		}},
		{"rate_limit_rules_tenant_id_idx", func() (int, error) {
			all, err := q.ListRules(t.Context(), pgdb.ListRulesParams{Tenant: &acme, MaxRows: 100})
			return len(all), err
		}},
		{"rate_limit_overrides_tenant_idx", func() (int, error) {
			all, err := q.ListTenantOverrides(t.Context(), pgdb.ListTenantOverridesParams{Tenant: acme, MaxRows: 100})
			return len(all), err
		}},
		{"rate_limit_exemptions_rule_id_subject_type_subject_value_key", func() (int, error) {
			all, err := q.ListExemptions(t.Context(), pgdb.ListExemptionsParams{Tenant: &acme, MaxRows: 100})
			return len(all), err
		}},
		{"rate_limit_rule_audit_tenant_id_idx", func() (int, error) {
			all, err := q.ListAudit(t.Context(), pgdb.ListAuditParams{Tenant: &acme, Before: 1 << 60, MaxRows: 100})
			return len(all) - 2, err // one each for the rule, the override and the exemption
		}},
		{"rate_limit_rules_owner_idx", func() (int, error) {
			n, err := q.CountExceptions(t.Context(), acme)
			return int(n) - 1, err // overrides and exemptions
		}},
	} {
		for range 8 { // from the sixth time on the plan may be generic
			w.rows, w.used = 0, map[string]bool{}
			n, err := query.run()
			if err != nil || n != 1 {
				t.Fatalf("%s: found %d, want one: %v", query.index, n, err)
			}
			if w.rows > 100 || !w.used[query.index] {
				t.Fatalf("%s: %.0f rows read with indexes %v", query.index, w.rows, slices.Sorted(maps.Keys(w.used)))
			}
		}
		t.Logf("%s: %.0f rows read", query.index, w.rows)
	}
}
