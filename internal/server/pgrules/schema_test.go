package pgrules_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// databases provides a migrated database for each test.
var databases = testenv.SharedPostgres{Prepare: migrate}

func TestMain(m *testing.M) { os.Exit(databases.Run(m)) }

func migrate(t testing.TB, server *testenv.Postgres) {
	t.Helper()
	db, err := pgrules.Open(server.URL(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// newDB returns a migrated database of its own.
func newDB(t *testing.T) (*pgrules.DB, *testenv.Postgres) {
	t.Helper()
	server := databases.Database(t)
	return open(t, server), server
}

// newServer returns a migrated database on a server of its own, which the test may stop.
func newServer(t *testing.T) (*pgrules.DB, *testenv.Postgres) {
	t.Helper()
	server := testenv.StartPostgres(t)
	migrate(t, server)
	return open(t, server), server
}

func open(t *testing.T, server *testenv.Postgres) *pgrules.DB {
	t.Helper()
	db, err := pgrules.Open(server.URL(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// sql runs statements as one transaction.
func sql(t *testing.T, server *testenv.Postgres, statements ...string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		for _, s := range statements {
			if _, err := tx.Exec(t.Context(), s); err != nil {
				return err
			}
		}
		return nil
	})
}

// one returns the single value that a query returns.
func one[T any](t *testing.T, server *testenv.Postgres, query string) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func TestMigrateFromAllNodes(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	migrated := 0
	for range 5 {
		db := open(t, server)
		all.Go(func() {
			from, to, err := db.Migrate(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if err != nil || to != pgrules.SchemaVersion() {
				t.Errorf("from %d to %d: %v", from, to, err)
			}
			if from < to {
				migrated++
			}
		})
	}
	all.Wait()
	if migrated != 1 {
		t.Errorf("%d nodes have migrated, want one", migrated)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	if _, err := pgrules.Open("postgres://ann:hunter2@[", ""); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	db := open(t, testenv.StartPostgres(t))
	if _, _, _, err := db.CurrentState(t.Context()); err == nil || !strings.Contains(err.Error(), "run headgate migrate") {
		t.Errorf("%v", err)
	}
}

const flatRule = `INSERT INTO rate_limit_rules (name, scope, algorithm, max_requests, window_seconds) VALUES ('%s', 'global', 'token_bucket', 10, 60)`

// The tables keep versions and audit of statements that were written by hand.
func TestTablesKeepHistory(t *testing.T) {
	t.Parallel()
	_, server := newDB(t)
	must := func(statements ...string) {
		t.Helper()
		if err := sql(t, server, statements...); err != nil {
			t.Fatal(err)
		}
	}
	number := func(query string) int64 { t.Helper(); return one[int64](t, server, query) }
	must("SET LOCAL headgate.actor = 'ann'", fmt.Sprintf(flatRule, "a"), fmt.Sprintf(flatRule, "b"))
	if v := number("SELECT version FROM rate_limit_state"); v != 1 {
		t.Errorf("version %d after one transaction", v)
	}
	must("UPDATE rate_limit_rules SET max_requests = 20 WHERE name = 'a'")
	must("UPDATE rate_limit_rules SET enabled = false WHERE name = 'b'")
	must("UPDATE rate_limit_state SET mode = 'shadow'")
	if v := number("SELECT version FROM rate_limit_state"); v != 4 {
		t.Errorf("version %d after four", v)
	}
	audit := one[string](t, server, `SELECT string_agg(object || ' ' || action || ' ' || version || ' ' || actor, ', ' ORDER BY id)
		FROM rate_limit_rule_audit`)
	if want := "rule insert 1 ann, rule insert 1 ann, rule update 2 sql:postgres, rule disable 3 sql:postgres, mode update 4 sql:postgres"; audit != want {
		t.Errorf("audit: %s\n  want: %s", audit, want)
	}
	if n := number("SELECT count(*) FROM rate_limit_rule_versions WHERE rule IS NULL AND version = 3"); n != 1 {
		t.Errorf("%d rules left in version 3, want one", n)
	}
	// Deleted exceptions stay, marked as removed, so that nodes read the removal.
	must("INSERT INTO rate_limit_exemptions (rule_id, subject_type, subject_value) SELECT id, 'user', 'ann' FROM rate_limit_rules WHERE name = 'a'")
	must("DELETE FROM rate_limit_exemptions")
	if n := number("SELECT count(*) FROM rate_limit_exemptions WHERE removed_at IS NOT NULL AND seq = (SELECT seq FROM rate_limit_state)"); n != 1 {
		t.Errorf("%d exemptions are marked as removed, want one", n)
	}
	if v := number("SELECT version FROM rate_limit_state"); v != 4 {
		t.Errorf("version %d: an exemption must not make a version", v)
	}
	for statement, want := range map[string]string{
		"UPDATE rate_limit_rule_audit SET actor = 'eve'":                                               "append-only",
		"DELETE FROM rate_limit_rule_audit":                                                            "append-only",
		"TRUNCATE rate_limit_rule_audit":                                                               "append-only",
		"UPDATE rate_limit_versions SET actor = 'eve'":                                                 "append-only",
		"DELETE FROM rate_limit_rule_versions":                                                         "append-only",
		"UPDATE rate_limit_rule_versions SET rule = '{}'":                                              "append-only",
		"DELETE FROM rate_limit_rules":                                                                 "SET enabled = false",
		"UPDATE rate_limit_rules SET name = 'c' WHERE name = 'a'":                                      "keeps its name",
		"UPDATE rate_limit_rules SET document = '{' WHERE name = 'a'":                                  "rate_limit_rules_document_is_object",
		"UPDATE rate_limit_rules SET scope = 'planet' WHERE name = 'a'":                                "scope",
		"INSERT INTO rate_limit_rules (name, scope, document) VALUES ('c', 'none', '{\"id\": \"c\"}')": "scope",
	} {
		if err := sql(t, server, statement); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", statement, err, want)
		}
	}
	must(`UPDATE rate_limit_rules SET document = '{"id": "a", "by": ["client"], "limit": "20/minute"}' WHERE name = 'a'`)
	if err := sql(t, server, "UPDATE rate_limit_rules SET max_requests = 30 WHERE name = 'a'"); err == nil || !strings.Contains(err.Error(), "has a document") {
		t.Errorf("a column was changed without the document: %v", err)
	}
}
