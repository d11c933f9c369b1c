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
	// loaded is how many nodes are asked all the time while PostgreSQL fails; one more is killed and started again meanwhile.
	loaded = 5
	// path is what all checks ask for, and rule what decides them.
	path = "/api"
	rule = "api"
	// patience is how long anything may take before it counts as never.
	patience  = 20 * time.Second
	pollPause = time.Millisecond
)

var ann = pgrules.Who{Name: "ann", Comment: "trying"}

// world is PostgreSQL with a standby, and nodes that follow it.
type world struct {
	*suite.Report
	scope   *suite.Scope
	program string // headgate
	redis   *testenv.Server
	short   bool

	primary, standby *testenv.Postgres
	small            bool   // whether the primary's disk can be filled
	address          string // for nodes: of both
	db               *pgrules.DB
	nodes            []*node
	fixed            *node // has its rules in a file: whatever disturbs it too is not PostgreSQL's doing
	limit            int64 // of the rule, by the hour; each change makes it one more
}

func (w *world) start() {
	start := testenv.StartPostgres
	if w.small = os.Geteuid() == 0 && !w.short; w.small {
		start = testenv.StartSmallPostgres
	}
	w.primary = start(w.scope)
	w.standby = w.primary.Standby(w.scope)
	w.address = together(w.primary, w.standby)
	w.db = openDB(w.scope, w.address)
	_, _, err := w.db.Migrate(w.scope.Context())
	testenv.NoError(w.scope, err)
	w.limit = 1_000_000
	w.put(w.scope)
	for range loaded + 1 {
		n := w.newNode(from(w.address), nil)
		n.Start()
		w.nodes = append(w.nodes, n)
	}
	w.reach(w.scope, "anybody", w.limit)
	w.fixed = w.newNode("rules: rules.yaml", map[string]string{"rules.yaml": fmt.Sprintf("rules: [%s]\n", document(rule, path, w.limit))})
	w.fixed.Start()
}

// from is the part of a node's config that says where PostgreSQL is.
func from(address string) string {
	return fmt.Sprintf("postgres: {address: %q}\nlast_good_file: kept", address)
}

func openDB(t *suite.Scope, address string) *pgrules.DB {
	db, err := pgrules.Open(address, "")
	testenv.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// together is the address of two servers, of which the one that takes writes is meant.
func together(a, b *testenv.Postgres) string {
	one, _ := url.Parse(a.URL())
	other, _ := url.Parse(b.URL())
	return fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", one.Host, other.Host)
}

// sql runs a statement by hand.
func (w *world) sql(t *suite.Scope, statement string) {
	conn, err := pgx.Connect(t.Context(), w.address)
	testenv.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), statement)
	testenv.NoError(t, err)
}

// document is a rule in JSON.
func document(id, path string, limit int64) string {
	return fmt.Sprintf(`{"id":%q,"match":{"path":%q},"by":["user"],"limit":"%d/hour"}`, id, path, limit)
}

// edit is what makes a rule of a document.
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

// put publishes another limit.
func (w *world) put(t *suite.Scope) (version int64) {
	version, err := w.tryPut(t.Context(), w.db)
	testenv.NoError(t, err)
	return version
}

func (w *world) tryPut(ctx context.Context, db *pgrules.DB) (version int64, err error) {
	version, err = publish(ctx, db, ann, document(rule, path, w.limit+1))
	if err == nil {
		w.limit++
	}
	return version, err
}

// override gives a user a limit of their own.
func override(t *suite.Scope, db *pgrules.DB, rule, user string, limit int64) {
	o := pgrules.Override{Rule: rule, Subject: headgate.Attributes{"user": user}, Limit: fmt.Sprintf("%d/hour", limit)}
	_, err := db.SetOverrides(t.Context(), ann, []pgrules.Override{o})
	testenv.NoError(t, err)
}

// present is the version in force, and the number of the last change.
func present(t *suite.Scope, db *pgrules.DB) (version, change int64) {
	version, change, _, err := db.Present(t.Context())
	testenv.NoError(t, err)
	return version, change
}

// each asks all nodes at once.
func (w *world) each(ask func(n *node) error) error {
	var all errgroup.Group
	for _, n := range w.nodes {
		all.Go(func() error { return ask(n) })
	}
	return all.Wait()
}

// become returns when all nodes say that they are well, or degraded, and why.
func (w *world) become(t *suite.Scope, status, why string) {
	testenv.NoError(t, w.each(func(n *node) error { return n.becomes(t.Context(), status, why) }))
}

// reach is how long it takes until all nodes decide about a user by a limit.
func (w *world) reach(t *suite.Scope, user string, limit int64) time.Duration {
	began := time.Now()
	testenv.NoError(t, w.each(func(n *node) error { return n.until(t.Context(), path, user, limit) }))
	return time.Since(began)
}
