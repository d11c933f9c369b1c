package pgrules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/testenv"
)

// planNode is a node of a plan that was run, as auto_explain writes it.
type planNode struct {
	Rows         float64    `json:"Actual Rows"` // of each loop, as the next two
	Filtered     float64    `json:"Rows Removed by Filter"`
	FilteredJoin float64    `json:"Rows Removed by Join Filter"`
	Loops        float64    `json:"Actual Loops"`
	Nodes        []planNode `json:"Plans"`
}

// rows returns how many rows the node and those below it have looked at.
func (n *planNode) rows() float64 {
	sum := n.Loops * (n.Rows + n.Filtered + n.FilteredJoin)
	for i := range n.Nodes {
		sum += n.Nodes[i].rows()
	}
	return sum
}

// watched is a connection that counts what PostgreSQL does for its statements, those within triggers included.
type watched struct {
	t    *testing.T
	conn *pgx.Conn
	rows float64 // looked at
}

func watch(t *testing.T, server *testenv.Postgres) *watched {
	t.Helper()
	w := &watched{t: t}
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

// exec runs a statement, and returns how many rows PostgreSQL has looked at.
func (w *watched) exec(statement string) float64 {
	w.t.Helper()
	w.rows = 0
	if _, err := w.conn.Exec(w.t.Context(), statement); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
	return w.rows
}

// All changes wait for the one that holds the state, so none may cost more than its rows do, whatever was changed before it in the
// same session: plans are kept.
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
			w.exec(table.update + " WHERE false") // the plan of a change of nothing is kept
			rows := map[string]float64{}
			for _, n := range []int{some, more} {
				insert := fmt.Sprintf(table.insert, n)
				for _, s := range []struct{ what, statement string }{{"insert", insert}, {"update", table.update}} {
					what := fmt.Sprintf("%s %d", s.what, n)
					rows[what] = w.exec(s.statement)
					t.Logf("%s: %.0f rows are looked at", what, rows[what])
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
