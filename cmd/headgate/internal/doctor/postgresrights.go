package doctor

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
)

// Error codes of PostgreSQL.
const (
	invalidPassword  = "28P01"
	invalidUser      = "28000"
	unknownDatabase  = "3D000"
	missingPrivilege = "42501"
)

// postgresRemedy returns what to do about an error of the first query.
func postgresRemedy(err error) string {
	var reply *pgconn.PgError
	if errors.As(err, &reply) {
		switch reply.Code {
		case invalidPassword, invalidUser:
			return "correct the user in postgres.address and the password in postgres.password_file"
		case unknownDatabase:
			return "create the database, or correct its name in postgres.address"
		}
	}
	return "start PostgreSQL, or correct postgres.address and the password"
}

// isMissingPrivilege reports whether the user may not do what a query needs.
func isMissingPrivilege(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && reply.Code == missingPrivilege
}

// checkRights checks that the user of the config may write to the tables. A query that nodes do not make fails silently: the other
// findings have its reason.
func checkRights(ctx context.Context, c *config.Config) []Finding {
	o, err := pgx.ParseConfig(c.Postgres.Address)
	if err != nil {
		return nil
	}
	if password, err := config.ReadSecret(c.Postgres.PasswordFile); err == nil && len(password) > 0 {
		o.Password = string(password)
	}
	conn, err := pgx.ConnectConfig(ctx, o)
	if err != nil {
		return nil
	}
	defer conn.Close(ctx) //nolint:errcheck // it was only read
	problem := func(detail, remedy string) []Finding {
		return []Finding{{Section: SectionPostgres, Check: "rights", Status: Problem, Detail: detail, Remedy: remedy}}
	}
	psql := func(sql, comment string) string {
		return shellwords.Command("psql", "-h", o.Host, "-p", strconv.Itoa(int(o.Port)), "-d", o.Database, "-c", sql) + " # " + comment
	}
	user := pgx.Identifier{o.User}.Sanitize()
	var standby, readOnly bool
	var tables []string
	err = conn.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool, ARRAY(
		SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)
			AND (relname LIKE 'rate\_limit\_%' OR relname = 'usage_daily')
			AND NOT (has_table_privilege(oid, 'SELECT') AND (relname = 'rate_limit_migrations' OR has_table_privilege(oid, 'INSERT')))
		ORDER BY relname)`).Scan(&standby, &readOnly, &tables)
	switch {
	case err != nil:
		return nil
	case len(tables) > 0:
		return problem("the user "+o.User+" may not read and change "+wording.List(tables)+": nodes cannot load rules, or not report what they run",
			psql("GRANT SELECT, INSERT, UPDATE, DELETE ON "+strings.Join(tables, ", ")+" TO "+user, "as the owner of the tables: -U NAME"))
	case standby:
		return problem("the server is a standby, which rejects changes: rules, overrides and tokens cannot be changed", "postgres.address: name the primary, or add target_session_attrs=read-write with several hosts")
	case readOnly:
		return problem("default_transaction_read_only is on: rules, overrides and tokens cannot be changed",
			"PGOPTIONS='-c default_transaction_read_only=off' "+psql("ALTER ROLE "+user+" IN DATABASE "+pgx.Identifier{o.Database}.Sanitize()+" SET default_transaction_read_only = off", "as a superuser: -U NAME"))
	}
	return nil
}
