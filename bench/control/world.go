package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	// loadedNodes is the number of nodes under load while PostgreSQL fails; one more node is killed and restarted.
	loadedNodes = 5
	// path is the path of all checks, rule the rule that applies to it.
	path = "/api"
	rule = "api"
	// patience is the timeout of all waits.
	patience  = 20 * time.Second
	pollPause = time.Millisecond
)

var ann = pgrules.Who{Name: "ann", Comment: "test"}

// world is a PostgreSQL with a standby, and nodes that follow it.
type world struct {
	*suite.Report
	scope   *suite.Scope
	program string // headgate
	redis   *testenv.Server
	short   bool

	primary, standby *testenv.Postgres
	small            bool   // whether the primary's disk can be filled
	address          string // of both servers, for nodes
	db               *pgrules.DB
	nodes            []*node
	fileNode         *node // has its rules in a file: what disturbs it too is not caused by PostgreSQL
	limit            int64 // of the rule, per hour; each change increments it
}

func (w *world) start() {
	start := testenv.StartPostgres
	if w.small = os.Geteuid() == 0 && !w.short; w.small {
		start = testenv.StartSmallPostgres
	}
	w.primary = start(w.scope)
	w.standby = w.primary.Standby(w.scope)
	w.address = multiHostAddress(w.primary, w.standby)
	w.db = openDB(w.scope, w.address)
	_, _, err := w.db.Migrate(w.scope.Context())
	testenv.NoError(w.scope, err)
	w.limit = 1_000_000
	w.changeLimit(w.scope)
	for range loadedNodes + 1 {
		n := w.newNode(from(w.address), nil)
		n.Start()
		w.nodes = append(w.nodes, n)
	}
	w.awaitLimit(w.scope, "any-user", w.limit)
	w.fileNode = w.newNode("rules: rules.yaml", map[string]string{"rules.yaml": fmt.Sprintf("rules: [%s]\n", document(rule, path, w.limit))})
	w.fileNode.Start()
}

// from returns the part of a node's config that locates PostgreSQL.
func from(address string) string {
	return fmt.Sprintf("postgres: {address: %q}\nlast_good_file: kept", address)
}

func openDB(t *suite.Scope, address string) *pgrules.DB {
	db, err := pgrules.Open(address, "")
	testenv.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// multiHostAddress returns an address of two servers that connects to the one that accepts writes.
func multiHostAddress(a, b *testenv.Postgres) string {
	one, _ := url.Parse(a.URL())
	other, _ := url.Parse(b.URL())
	return fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", one.Host, other.Host)
}

// sql runs a statement, bypassing pgrules.
func (w *world) sql(t *suite.Scope, statement string) {
	conn, err := pgx.Connect(t.Context(), w.address)
	testenv.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), statement)
	testenv.NoError(t, err)
}

// document returns a rule as JSON.
func document(id, path string, limit int64) string {
	return fmt.Sprintf(`{"id":%q,"match":{"path":%q},"by":["user"],"limit":"%d/hour"}`, id, path, limit)
}

// edit returns the edit that publishes a rule document.
func edit(text string) (pgrules.Edit, error) {
	d, err := pgrules.Define([]byte(text))
	if err != nil {
		return pgrules.Edit{}, err
	}
	return pgrules.Edit{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision}, nil
}

func publish(ctx context.Context, db *pgrules.DB, who pgrules.Who, texts ...string) (version int64, err error) {
	edits := make([]pgrules.Edit, len(texts))
	for i, text := range texts {
		if edits[i], err = edit(text); err != nil {
			return 0, err
		}
	}
	done, err := db.Publish(ctx, who, pgrules.Change{Edits: edits})
	return done.Version, err
}

// changeLimit publishes the next limit.
func (w *world) changeLimit(t *suite.Scope) (version int64) {
	version, err := w.tryChangeLimit(t.Context(), w.db)
	testenv.NoError(t, err)
	return version
}

func (w *world) tryChangeLimit(ctx context.Context, db *pgrules.DB) (version int64, err error) {
	version, err = publish(ctx, db, ann, document(rule, path, w.limit+1))
	if err == nil {
		w.limit++
	}
	return version, err
}

// override sets an override for a user.
func override(t *suite.Scope, db *pgrules.DB, rule, user string, limit int64) {
	o := pgrules.Override{Rule: rule, Subject: headgate.Attributes{"user": user}, Limit: fmt.Sprintf("%d/hour", limit)}
	_, err := db.SetOverrides(t.Context(), ann, []pgrules.Override{o})
	testenv.NoError(t, err)
}

// present returns the version in force and the number of the last change.
func present(t *suite.Scope, db *pgrules.DB) (version, change int64) {
	version, change, _, err := db.CurrentState(t.Context())
	testenv.NoError(t, err)
	return version, change
}

// eachNode calls do for all nodes concurrently.
func (w *world) eachNode(do func(n *node) error) error {
	var all errgroup.Group
	for _, n := range w.nodes {
		all.Go(func() error { return do(n) })
	}
	return all.Wait()
}

// awaitStatus returns when all nodes report a status and a problem that contains why.
func (w *world) awaitStatus(t *suite.Scope, status, why string) {
	testenv.NoError(t, w.eachNode(func(n *node) error { return n.awaitStatus(t.Context(), status, why) }))
}

// awaitLimit returns how long it takes until all nodes apply a limit to a user.
func (w *world) awaitLimit(t *suite.Scope, user string, limit int64) time.Duration {
	began := time.Now()
	testenv.NoError(t, w.eachNode(func(n *node) error { return n.awaitLimit(t.Context(), path, user, limit) }))
	return time.Since(began)
}
