// Package pgrules stores rules, overrides and exemptions in PostgreSQL, with every version of the rules and an audit of all
// changes, and keeps nodes in sync with it.
//
// It knows the tables, what may be written to them, and how a node gets from one state to the next. Package ruledoc parses the
// documents of rules. The caller decides who may change what.
package pgrules

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	connectTimeout = 3 * time.Second
	maxConnections = 8

	migrationsTable = "rate_limit_migrations"
	undefinedTable  = "42P01" // an error code
)

// Errors that callers distinguish.
var (
	// ErrNotFound means that a rule, override, exemption, version or token does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that another writer has changed an object since it was read.
	ErrConflict = errors.New("changed by another writer")
	// ErrRejected means that a change is invalid, harmful or exceeds a quota.
	ErrRejected = errors.New("rejected")
	// ErrReadOnly means that the database, or its user's permissions, allow no change.
	ErrReadOnly = errors.New("read-only")
)

// DB is the database of the control plane. It is safe for concurrent use.
type DB struct {
	pool    *pgxpool.Pool
	address string // without the password
	quotas  Quotas

	mu     sync.Mutex
	parsed map[int64]parsedRule // cache, by rule id
}

// Open returns the DB at a URL such as postgres://headgate@db.example:5432/headgate. It does not connect yet. The password, if
// any, is given separately, so that it is not in the URL.
func Open(address, password string) (*DB, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("%s: invalid PostgreSQL URL: write postgres://USER@HOST:5432/DATABASE", redact.Address(address))
	}
	if password != "" {
		config.ConnConfig.Password = password
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	config.ConnConfig.RuntimeParams["application_name"] = "headgate"
	config.MaxConns = maxConnections
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL at %s: %w", redact.Address(address), err)
	}
	return &DB{pool: pool, address: redact.Address(address), quotas: DefaultQuotas(), parsed: map[int64]parsedRule{}}, nil
}

// Close closes all connections.
func (db *DB) Close() { db.pool.Close() }

// Address returns the URL of the database, without the password.
func (db *DB) Address() string { return db.address }

// SchemaVersion returns the number of the last migration: the version of the schema that this program needs.
func SchemaVersion() int64 {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		panic(fmt.Sprint("pgrules: no embedded migrations: ", err))
	}
	version, err := goose.NumericComponent(files[len(files)-1]) // Glob sorts, and the numbers have leading zeros
	if err != nil {
		panic(fmt.Sprint("pgrules: ", err))
	}
	return version
}

// AppliedSchema returns the version of the tables, which is 0 if there are none. It changes nothing.
func (db *DB) AppliedSchema(ctx context.Context) (version int64, err error) {
	err = db.pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+migrationsTable+" WHERE is_applied").Scan(&version)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == undefinedTable {
		return 0, nil
	}
	return version, db.explain(err)
}

// Migrate migrates the tables to the schema that this version needs. All nodes may run it at once: one migrates, the others wait.
func (db *DB) Migrate(ctx context.Context) (from, to int64, err error) {
	sources, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, 0, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // seconds, times
	if err != nil {
		return 0, 0, err
	}
	plain := stdlib.OpenDBFromPool(db.pool)
	defer plain.Close() //nolint:errcheck // the pool stays open
	provider, err := goose.NewProvider(goose.DialectPostgres, plain, sources, goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true), goose.WithTableName(migrationsTable))
	if err != nil {
		return 0, 0, err
	}
	done, err := provider.Up(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("PostgreSQL at %s: %w", db.address, err)
	}
	if to, err = provider.GetDBVersion(ctx); err != nil {
		return 0, 0, fmt.Errorf("PostgreSQL at %s: %w", db.address, err)
	}
	return to - int64(len(done)), to, nil
}

// Who identifies the author of a change, and the reason for it.
type Who struct {
	// Name is the name of the caller's token.
	Name string
	// Comment is shown in the history.
	Comment string
	// Tenant is the tenant that the author is bound to, whose quotas apply; "" for operators.
	Tenant string
}

// query returns the queries outside of a transaction.
func (db *DB) query() *pgdb.Queries { return pgdb.New(db.pool) }

// convert returns the rows converted to the exported type.
func convert[T, U any](rows []T, as func(T) U) []U {
	all := make([]U, len(rows))
	for i := range rows {
		all[i] = as(rows[i])
	}
	return all
}

// change runs a transaction with who as the author of its changes.
func (db *DB) change(ctx context.Context, who Who, do func(q *pgdb.Queries) error) error {
	err := pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		q := pgdb.New(tx)
		if err := q.SetActor(ctx, pgdb.SetActorParams{Actor: who.Name, Comment: who.Comment}); err != nil {
			return err
		}
		return do(q)
	})
	return db.explain(err)
}

// explain maps an error of the database to an error of this package, or adds the address and the remedy.
func (db *DB) explain(err error) error {
	var pgErr *pgconn.PgError
	var rate *ChangeRateError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) || errors.Is(err, ErrRejected) || errors.As(err, &rate):
		return err
	case errors.As(err, &pgErr) && (pgErr.Code == undefinedTable || pgErr.Code == "42883"): // no such table or function
		return fmt.Errorf("PostgreSQL at %s: tables not found: run headgate migrate: %w", db.address, err)
	case errors.As(err, &pgErr) && pgErr.Code == "42501": // insufficient privilege
		return fmt.Errorf("PostgreSQL at %s is %w for its user: grant it SELECT, INSERT, UPDATE and DELETE on all tables: %w", db.address, ErrReadOnly, err)
	case errors.As(err, &pgErr) && pgErr.Code == "25006": // read-only transaction
		return fmt.Errorf("PostgreSQL at %s is %w: use the primary, or set default_transaction_read_only = off: %w", db.address, ErrReadOnly, err)
	case errors.As(err, &pgErr) && (pgErr.Code == "23514" || pgErr.Code == "P0001" || pgErr.Code[:2] == "22"): // rejected by a constraint or trigger
		return fmt.Errorf("%w: %s", ErrRejected, pgErr.Message)
	}
	return fmt.Errorf("PostgreSQL at %s: %w", db.address, err)
}
