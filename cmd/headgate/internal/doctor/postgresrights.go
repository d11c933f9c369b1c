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
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/wording"
)

// Error codes of PostgreSQL.
const (
	invalidPassword = "28P01"
	invalidUser     = "28000"
	unknownDatabase = "3D000"
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

// checkRights checks that the user of the config may write to the tables. If that cannot be read, the other findings have the reason.
func checkRights(ctx context.Context, db *pgrules.DB, c *config.Config) []Finding {
	o, err := pgx.ParseConfig(c.Postgres.Address) // for the commands of remedies
	if err != nil {
		return nil
	}
	problem := func(detail, remedy string) []Finding {
		return []Finding{{Section: SectionPostgres, Check: "rights", Status: Problem, Detail: detail, Remedy: remedy}}
	}
	psql := func(sql, comment string) string {
		return shellwords.Command("psql", "-h", o.Host, "-p", strconv.Itoa(int(o.Port)), "-d", o.Database, "-c", sql) + " # " + comment
	}
	user := pgx.Identifier{o.User}.Sanitize()
	r, err := db.Rights(ctx)
	switch {
	case err != nil:
		return nil
	case len(r.Denied) > 0:
		return problem("the user "+o.User+" may not read and change "+wording.List(r.Denied)+": nodes cannot load rules, or not report what they run",
			psql("GRANT SELECT, INSERT, UPDATE, DELETE ON "+strings.Join(r.Denied, ", ")+" TO "+user, "as the owner of the tables: -U NAME"))
	case r.Standby:
		return problem("the server is a standby, which rejects changes: rules, overrides and tokens cannot be changed", "postgres.address: name the primary, or add target_session_attrs=read-write with several hosts")
	case r.ReadOnly:
		return problem("default_transaction_read_only is on: rules, overrides and tokens cannot be changed",
			"PGOPTIONS='-c default_transaction_read_only=off' "+psql("ALTER ROLE "+user+" IN DATABASE "+pgx.Identifier{o.Database}.Sanitize()+" SET default_transaction_read_only = off", "as a superuser: -U NAME"))
	}
	return nil
}
