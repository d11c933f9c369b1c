package pgrules_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/ruledoc"
)

// violated returns the constraint that a statement violates, "" if none. The statement is rolled back.
func violated(t *testing.T, conn *pgx.Conn, statement string, args ...any) string {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // nothing to commit
	_, err = tx.Exec(t.Context(), statement, args...)
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &pgErr):
		return cmp.Or(pgErr.ConstraintName, pgErr.ColumnName, pgErr.Message)
	}
	t.Fatalf("%s: %v", statement, err)
	return ""
}

func connect(t *testing.T, server *testenv.Postgres) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// The tables reject rows that would make every node reject the rules, and obvious mistakes, by a constraint with a descriptive name.
func TestTablesRejectBadRows(t *testing.T) {
	t.Parallel()
	_, server := newDB(t)
	if err := sql(t, server, fmt.Sprintf(flatRule, "a")); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, server)
	rule := func(columns, values string) string {
		return fmt.Sprintf("INSERT INTO rate_limit_rules (name, scope, max_requests, window_seconds%s) VALUES ('b', 'global', 10, 60%s)", columns, values)
	}
	set := func(what string) string { return "UPDATE rate_limit_rules SET " + what }
	override := func(subject, limit, reason, expires string) string {
		return fmt.Sprintf(`INSERT INTO rate_limit_overrides (rule_id, subject, limit_text, reason, expires_at)
			VALUES (1, '%s', '%s', '%s', %s)`, subject, limit, reason, expires)
	}
	exemption := func(kind, value, reason, expires string) string {
		return fmt.Sprintf(`INSERT INTO rate_limit_exemptions (rule_id, subject_type, subject_value, reason, expires_at)
			VALUES (1, '%s', '%s', '%s', %s)`, kind, value, reason, expires)
	}
	ann, long := `{"user":"ann"}`, strings.Repeat("x", 5_000)
	const hash = "sha256:0123456789012345678901"
	for _, good := range []string{
		rule("", ""), rule(", document", `, '{"id": "b", "by": ["client"], "limit": "10/minute"}'`),
		rule(", algorithm, burst_capacity", ", 'token_bucket', 20"), set("max_requests = NULL, document = '{\"id\": \"a\"}'"),
		override(ann, "5/minute", "", "NULL"), override(`{"api_key":"`+hash+`"}`, "5/minute", "why", "now() + interval '1 day'"),
		exemption("api_key", hash, "", "NULL"), exemption("ip_cidr", "2001:db8::/32", "", "NULL"), exemption("user", "ann", "", "NULL"),
	} {
		if by := violated(t, conn, good); by != "" {
			t.Errorf("%s\nis rejected by %s", good, by)
		}
	}
	for _, bad := range []struct{ statement, constraint string }{
		{fmt.Sprintf(flatRule, ""), "rate_limit_rules_name_valid"},
		{fmt.Sprintf(flatRule, "a b"), "rate_limit_rules_name_valid"},
		{fmt.Sprintf(flatRule, "long"+long), "rate_limit_rules_name_valid"},
		{fmt.Sprintf(flatRule, "0b6ee2ac-7a4f-4d59-9a0e-2a1d3a4b5c6d"), "rate_limit_rules_name_valid"},
		{fmt.Sprintf(flatRule, "a"), "rate_limit_rules_name_key"},
		{set("scope = 'planet'"), "rate_limit_rules_scope_check"},
		{set("scope = NULL"), "scope"},
		{set("owner = NULL"), "owner"},
		{set("enabled = NULL"), "enabled"},
		{set("tenant_id = ''"), "rate_limit_rules_tenant_id_check"},
		{set("http_method = ''"), "rate_limit_rules_http_method_check"},
		{set("path_pattern = ''"), "rate_limit_rules_path_pattern_check"},
		{set("tier = ''"), "rate_limit_rules_tier_check"},
		{set("algorithm = 'guess'"), "rate_limit_rules_algorithm_check"},
		{set("max_requests = 0"), "rate_limit_rules_max_requests_check"},
		{set("max_requests = -5"), "rate_limit_rules_max_requests_check"},
		{set("max_requests = 1000000001"), "rate_limit_rules_max_requests_check"},
		{set("window_seconds = 0"), "rate_limit_rules_window_seconds_check"},
		{set("window_seconds = -60"), "rate_limit_rules_window_seconds_check"},
		{set("window_seconds = 'NaN'"), "rate_limit_rules_window_seconds_check"},
		{set("window_seconds = 'Infinity'"), "rate_limit_rules_window_seconds_check"},
		{set("window_seconds = 1.2345"), "rate_limit_rules_window_seconds_check"},
		{set("burst_capacity = -1"), "rate_limit_rules_burst_capacity_check"},
		{set("burst_capacity = 1000000001"), "rate_limit_rules_burst_capacity_check"},
		{set("priority = -1"), "rate_limit_rules_priority_check"},
		{set("document = '{'"), "rate_limit_rules_document_is_object"},
		{set("document = ''"), "rate_limit_rules_document_is_object"},
		{set("document = '[]'"), "rate_limit_rules_document_is_object"},
		{set("document = 'null'"), "rate_limit_rules_document_is_object"},
		{set(`document = '{"id": "b"}'`), "rate_limit_rules_document_has_name"},
		{set(`document = '{"by": []}'`), "rate_limit_rules_document_has_name"},
		{set("max_requests = NULL"), "rate_limit_rules_document_or_columns"},
		{set("window_seconds = NULL"), "rate_limit_rules_document_or_columns"},
		{set("algorithm = 'sliding_window', burst_capacity = 5"), "rate_limit_rules_burst_of_token_bucket"},
		{set("max_requests = 1000000000, window_seconds = 0.5"), "rate_limit_rules_rate_countable"},
		{set("burst_capacity = 1000000000"), "rate_limit_rules_rate_countable"},
		{set("algorithm = 'sliding_log', max_requests = 10001"), "rate_limit_rules_rate_countable"},

		{override(``, "5/minute", "", "NULL"), "rate_limit_overrides_subject_valid"},
		{override(`ann`, "5/minute", "", "NULL"), "rate_limit_overrides_subject_valid"},
		{override(`{}`, "5/minute", "", "NULL"), "rate_limit_overrides_subject_valid"},
		{override(`["ann"]`, "5/minute", "", "NULL"), "rate_limit_overrides_subject_valid"},
		{override(`{"user":1}`, "5/minute", "", "NULL"), "rate_limit_overrides_subject_valid"},
		{override(`{"api_key":"secret"}`, "5/minute", "", "NULL"), "rate_limit_overrides_subject_valid"},
		{override(`{"user":"`+long+`"}`, "5/minute", "", "NULL"), "rate_limit_overrides_subject_check"},
		{override(ann, "", "", "NULL"), "rate_limit_overrides_limit_text_check"},
		{override(ann, "5/minute", long, "NULL"), "rate_limit_overrides_reason_check"},
		{override(ann, "5/minute", "", "now() - interval '1 day'"), "rate_limit_overrides_expires_after_creation"},
		{strings.Replace(override(ann, "5/minute", "", "NULL"), "VALUES (1", "VALUES (99", 1), "rate_limit_overrides_rule_id_fkey"},
		{strings.Replace(override(ann, "5/minute", "", "NULL"), "VALUES (1", "VALUES (NULL", 1), "rule_id"},

		{exemption("planet", "earth", "", "NULL"), "rate_limit_exemptions_subject_type_check"},
		{exemption("user", "", "", "NULL"), "rate_limit_exemptions_subject_value_check"},
		{exemption("user", long, "", "NULL"), "rate_limit_exemptions_subject_value_check"},
		{exemption("user", "ann", long, "NULL"), "rate_limit_exemptions_reason_check"},
		{exemption("user", "ann", "", "now()"), "rate_limit_exemptions_expires_after_creation"},
		{exemption("api_key", "secret", "", "NULL"), "rate_limit_exemptions_api_key_hashed"},
		{exemption("ip_cidr", "10.0.0.1/8", "", "NULL"), "rate_limit_exemptions_network_valid"},
		{exemption("ip_cidr", "everywhere", "", "NULL"), "rate_limit_exemptions_network_valid"},

		{"UPDATE rate_limit_state SET mode = 'party'", "rate_limit_state_mode_check"},
		{"UPDATE rate_limit_state SET version = -1", "rate_limit_state_version_check"},
		{"INSERT INTO rate_limit_versions (version, mode, actor) VALUES (9, 'party', 'ann')", "rate_limit_versions_mode_check"},
		{"INSERT INTO rate_limit_rule_audit (object, action, actor) VALUES ('cake', 'insert', 'ann')", "rate_limit_rule_audit_object_check"},
		{"INSERT INTO rate_limit_tokens (name, sum, role) VALUES ('', sha256('x'), 'viewer')", "rate_limit_tokens_name_check"},
		{"INSERT INTO rate_limit_tokens (name, sum, role) VALUES ('ann', 'x', 'viewer')", "rate_limit_tokens_sum_check"},
		{"INSERT INTO rate_limit_tokens (name, sum, role) VALUES ('ann', sha256('x'), 'god')", "rate_limit_tokens_role_check"},
		{"INSERT INTO rate_limit_tokens (name, sum, role, expires_at) VALUES ('ann', sha256('x'), 'viewer', '2020-01-01')", "rate_limit_tokens_expires_after_creation"},
		{"INSERT INTO usage_daily (day, rule, subject, denied) VALUES (now(), 'a', 's', -1)", "usage_daily_denied_check"},
		{"INSERT INTO usage_daily (day, rule, subject, attributes) VALUES (now(), 'a', 's', 'x')", "usage_daily_attributes_check"},
	} {
		if by := violated(t, conn, bad.statement); by != bad.constraint {
			t.Errorf("%s\nis rejected by %q, want %s", bad.statement, by, bad.constraint)
		}
	}
}

// For rules without a document, the tables accept exactly the rows that nodes accept.
func TestTablesAgreeWithNodes(t *testing.T) {
	t.Parallel()
	_, server := newDB(t)
	conn := connect(t, server)
	rules, rejected := 0, 0
	for _, name := range []string{"a", "a:b/c.d-e_f", "", "ä", "a b", strings.Repeat("n", 128), strings.Repeat("n", 129)} {
		for _, algorithm := range []string{
			"", "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log",
			"sliding_window_counter", "sliding_window_log", "Token_Bucket", "concurrency",
		} {
			for _, requests := range []int64{-1, 0, 1, 100, 10_001, 1_000_000_000, 1_000_000_001} {
				for _, window := range []float64{-1, 0, 0.0005, 0.001, 1.5, 1.2345, 60, 86_400, 31_622_400, 31_622_401} {
					for _, burst := range []int64{-1, 0, 1, 1_000_000_000} {
						if name != "a" && (requests != 100 || window != 60 || burst > 0) {
							continue // all combinations with one name are enough
						}
						flat := ruledoc.Flat{
							Name: name, Scope: "global", Algorithm: algorithm, MaxRequests: requests, WindowSeconds: window, BurstCapacity: burst,
						}
						_, err := flat.Rule()
						by := violated(t, conn, `INSERT INTO rate_limit_rules (name, scope, algorithm, max_requests, window_seconds, burst_capacity)
							VALUES ($1, 'global', nullif($2, ''), $3, $4, $5)`, name, algorithm, requests, window, burst)
						if rules++; err != nil {
							rejected++
						}
						if (by == "") != (err == nil) {
							t.Errorf("%+v: constraint %q, nodes: %v", flat, by, err)
						}
					}
				}
			}
		}
	}
	t.Logf("%d rules, of which nodes and tables reject %d", rules, rejected)
}
