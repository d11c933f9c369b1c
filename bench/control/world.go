package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
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
	scope   *paired.Scope
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

func (w *world) start(ctx context.Context) error {
	start := testenv.StartPostgres
	if w.small = os.Geteuid() == 0 && !w.short; w.small {
		start = testenv.StartSmallPostgres
	}
	w.primary = start(w.scope)
	w.standby = w.primary.Standby(w.scope)
	w.address = together(w.primary, w.standby)
	var err error
	if w.db, err = openDB(w.scope, w.address); err != nil {
		return err
	}
	if _, _, err := w.db.Migrate(ctx); err != nil {
		return err
	}
	w.limit = 1_000_000
	if _, err := w.put(ctx); err != nil {
		return err
	}
	for range loaded + 1 {
		n, err := newNode(w.scope, w.program, w.redis.Addr(), from(w.address))
		if err != nil {
			return err
		}
		n.Start()
		w.nodes = append(w.nodes, n)
	}
	if _, err = w.reach(ctx, "anybody", w.limit); err != nil {
		return err
	}
	return w.startFixed()
}

// startFixed starts the node with a file.
func (w *world) startFixed() (err error) {
	if w.fixed, err = newNode(w.scope, w.program, w.redis.Addr(), "rules: rules.yaml"); err != nil {
		return err
	}
	text := fmt.Sprintf("rules: [%s]\n", document(rule, path, w.limit))
	if err := w.fixed.Write("rules.yaml", text); err != nil {
		return err
	}
	w.fixed.Start()
	return nil
}

// from is the part of a node's config that says where PostgreSQL is.
func from(address string) string { return fmt.Sprintf("postgres: {address: %q}\nkeep: kept", address) }

func openDB(scope *paired.Scope, address string) (*pgrules.DB, error) {
	db, err := pgrules.Open(address, "")
	if err == nil {
		scope.Cleanup(db.Close)
	}
	return db, err
}

// together is the address of two servers, of which the one that takes writes is meant.
func together(a, b *testenv.Postgres) string {
	one, _ := url.Parse(a.URL())
	other, _ := url.Parse(b.URL())
	return fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", one.Host, other.Host)
}

// sql runs statements by hand, one after the other.
func (w *world) sql(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, w.address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
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
func (w *world) put(ctx context.Context) (version int64, err error) { return w.putBy(ctx, w.db) }

func (w *world) putBy(ctx context.Context, db *pgrules.DB) (version int64, err error) {
	version, err = publish(ctx, db, ann, document(rule, path, w.limit+1))
	if err == nil {
		w.limit++
	}
	return version, err
}

// override gives a user a limit of their own.
func override(ctx context.Context, db *pgrules.DB, rule, user string, limit int64) error {
	o := pgrules.Override{Rule: rule, Subject: headgate.Attributes{"user": user}, Text: fmt.Sprintf("%d/hour", limit)}
	_, err := db.SetOverrides(ctx, ann, []pgrules.Override{o})
	return err
}

// each asks all nodes at once.
func (w *world) each(ask func(n *node) error) error {
	errs := make([]error, len(w.nodes))
	var all sync.WaitGroup
	for i, n := range w.nodes {
		all.Go(func() { errs[i] = ask(n) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// reach is how long it takes until all nodes decide about a user by a limit.
func (w *world) reach(ctx context.Context, user string, limit int64) (took time.Duration, err error) {
	began := time.Now()
	err = w.each(func(n *node) error { return n.until(ctx, path, user, limit) })
	return time.Since(began), err
}

// until returns when a node decides by a limit.
func (n *node) until(ctx context.Context, path, user string, limit int64) error {
	return await(fmt.Sprintf("limit %d of %s at %s", limit, user, n.HTTP), func() (bool, error) {
		a, err := n.check(ctx, path, user)
		return err == nil && a.count() == limit, err
	})
}

// troubled returns when a node says that it does not use what is there, and why.
func (n *node) troubled(ctx context.Context, why string) error {
	return await("problem at "+n.Ops, func() (bool, error) {
		h, err := n.ready(ctx)
		if err == nil && (h.Status != "degraded" || !strings.Contains(h.Rules.Problem, why)) {
			err = fmt.Errorf("%s: %s", h.Status, h.Rules.Problem)
		}
		return err == nil, err
	})
}

// well returns when a node has nothing to complain of.
func (n *node) well(ctx context.Context) error {
	return await("no problem at "+n.Ops, func() (bool, error) {
		h, err := n.ready(ctx)
		if err == nil && h.Status != "ok" {
			err = errors.New(h.Rules.Problem)
		}
		return err == nil, err
	})
}

// await asks again until it is so.
func await(what string, so func() (bool, error)) error {
	for end := time.Now().Add(patience); ; paired.Sleep(pollPause) {
		yes, err := so()
		if yes {
			return nil
		}
		if time.Now().After(end) || errors.Is(err, context.Canceled) {
			return errors.Join(fmt.Errorf("%s: not within %v", what, patience), err)
		}
	}
}
