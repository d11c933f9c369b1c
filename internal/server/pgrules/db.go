// Package pgrules keeps rules, overrides and exemptions in PostgreSQL, with every version of the rules and who has changed
// what, and has nodes follow it.
//
// It knows the tables, what may be written to them, and how a node gets from one state to the next. What a document says is
// for package ruledoc, and who may change what is for whoever calls.
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
)

// Errors that callers tell apart.
var (
	// ErrNotFound says that there is no such rule, override, exemption or version.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that somebody else has changed it since it was read.
	ErrConflict = errors.New("it has been changed meanwhile")
	// ErrDenied says that what is wanted makes no sense, or would harm.
	ErrDenied = errors.New("denied")
)

// DB is the database of the control plane. It is safe for use by many goroutines.
type DB struct {
	pool    *pgxpool.Pool
	address string // without the password
	quotas  Quotas

	mu     sync.Mutex
	parsed map[int64]parsedRule // by id
}

// Open makes a DB of a URL like postgres://headgate@db.example:5432/headgate. It does not connect yet. A password, if there
// is one, is not in the URL.
func Open(address, password string) (*DB, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("%s is no address of PostgreSQL: write postgres://USER@HOST:5432/DATABASE", redact.Address(address))
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

// Close ends all connections.
func (db *DB) Close() { db.pool.Close() }

// Address is where the database is, without a password.
func (db *DB) Address() string { return db.address }

// Migrate brings the tables to what this program needs. It may be run by all nodes at once: one does it and the others wait.
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
	defer plain.Close() //nolint:errcheck // the pool is ours, and goes on
	provider, err := goose.NewProvider(goose.DialectPostgres, plain, sources, goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true), goose.WithTableName("rate_limit_migrations"))
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

// Who makes a change, and why.
type Who struct {
	// Name is whose token it was.
	Name string
	// Comment is for the history.
	Comment string
	// Tenant is the one that they are bound to, whose quotas apply; "" for operators.
	Tenant string
}

// query is for reading.
func (db *DB) query() *pgdb.Queries { return pgdb.New(db.pool) }

// convert returns what rows are for callers.
func convert[T, U any](rows []T, as func(T) U) []U {
	all := make([]U, len(rows))
	for i := range rows {
		all[i] = as(rows[i])
	}
	return all
}

// change runs a transaction in somebody's name.
func (db *DB) change(ctx context.Context, who Who, do func(q *pgdb.Queries) error) error {
	err := pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		q := pgdb.New(tx)
		if err := q.SayWho(ctx, pgdb.SayWhoParams{Actor: who.Name, Comment: who.Comment}); err != nil {
			return err
		}
		return do(q)
	})
	return db.explain(err)
}

// explain makes an error of the database one that says what to do.
func (db *DB) explain(err error) error {
	var said *pgconn.PgError
	var pace *PaceError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) || errors.Is(err, ErrDenied) || errors.As(err, &pace):
		return err
	case errors.As(err, &said) && (said.Code == "42P01" || said.Code == "42883"): // no such table or function
		return fmt.Errorf("PostgreSQL at %s has not the tables yet: run headgate migrate: %w", db.address, err)
	case errors.As(err, &said) && (said.Code == "23514" || said.Code == "P0001" || said.Code[:2] == "22"): // what the tables deny
		return fmt.Errorf("%w: %s", ErrDenied, said.Message)
	}
	return fmt.Errorf("PostgreSQL at %s: %w", db.address, err)
}
