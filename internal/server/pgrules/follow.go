package pgrules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
	"github.com/headgate/headgate/ruledoc"
)

// A server that hangs costs a node pollEvery + askTimeout + retryEvery + connectTimeout until it is at another one.
const (
	// pollEvery is how often a node looks by itself, should nobody tell it of a change.
	pollEvery = 3 * time.Second
	// retryEvery is how soon it tries again after an error.
	retryEvery = time.Second
	// askTimeout is for questions with short answers, loadTimeout for all there is.
	askTimeout  = 3 * time.Second
	loadTimeout = 5 * time.Minute
	// hostsTimeout is for a connection to one of some hosts, startTimeout for one that a node can start without.
	hostsTimeout = 4 * connectTimeout
	startTimeout = 2 * time.Second
	purgeEvery   = 24 * time.Hour
)

// FollowOptions say what a node does with what it reads.
type FollowOptions struct {
	// Limiter gets the rules, overrides and exemptions.
	Limiter *headgate.Limiter
	// Mode is the most that any rule may do, whatever the database says.
	Mode headgate.Mode
	// LastGoodFile names a file for the last good state, with which a node starts if the database is away; "" means that it cannot.
	LastGoodFile string
	// Node is the name by which the node reports what it runs.
	Node string
	// Report is told of everything that people should know. It is never called twice at a time.
	Report func(ruledoc.Event)
	// Log is told of single overrides and exemptions that make no sense.
	Log *slog.Logger
}

// Follower keeps what is in use on a node the same as the database.
type Follower struct {
	db      *DB
	o       FollowOptions
	started time.Time
	stopped chan struct{}

	at       position // of what is in use
	denied   position // of what cannot be used
	denial   error    // why
	rules    ruleSet
	version  string // of what is in use, for people
	problem  string // why what is in use is not what is there
	keep     *keeper
	keepSaid string
	told     bool // anybody of anything
	purged   time.Time

	checked atomic.Int64 // when, in milliseconds since 1970
}

// position is how far a node has read.
type position struct {
	Version int64  `json:"version"`
	Seq     int64  `json:"seq"`
	Mark    string `json:"mark"`
	Mode    string `json:"mode"`
}

// Follow takes what the database has into use, and does so again whenever it changes, until ctx ends. If the database is away at the
// start, what was kept is used; it fails only if that does not help either.
func (db *DB) Follow(ctx context.Context, o FollowOptions) (*Follower, error) {
	f := &Follower{
		db: db, o: o, started: time.Now(), purged: time.Now(), stopped: make(chan struct{}),
		rules: ruleSet{}, keep: &keeper{path: o.LastGoodFile},
	}
	f.checked.Store(f.started.UnixMilli())
	keepErr := f.startFromKept(ctx)
	if errors.Is(keepErr, fs.ErrNotExist) {
		keepErr = nil // it is the first start
	}
	patience := hostsTimeout
	if f.version != "" {
		patience = startTimeout
	}
	conn, err := f.connect(ctx, patience)
	if err == nil {
		err = f.look(ctx, conn)
	}
	switch {
	case f.version == "" && err == nil:
		f.hangUp(ctx, conn)
		return nil, fmt.Errorf("no rules to start with: %s", f.problem)
	case f.version == "":
		f.hangUp(ctx, conn)
		return nil, errors.Join(fmt.Errorf("no rules to start with: %w", err), keepErr)
	case err != nil:
		f.problem = err.Error()
		f.say(ruledoc.Event{Kind: ruledoc.StartedFromLastGood, Err: err, LastGoodFile: o.LastGoodFile, LastGoodTime: f.keep.since})
	}
	if !f.told { // what was kept is what is there
		f.say(ruledoc.Event{Kind: ruledoc.Applied})
	}
	if f.keep.path != "" {
		f.note(keepErr)
	}
	go f.run(ctx, conn)
	return f, nil
}

// Checked is when what is in use was last seen to be what the database has; before that, the start.
func (f *Follower) Checked() time.Time { return time.UnixMilli(f.checked.Load()) }

// Wait returns when following has stopped, after the context has ended.
func (f *Follower) Wait() { <-f.stopped }

func (f *Follower) say(e ruledoc.Event) {
	e.Version, e.Source, f.told = f.version, "PostgreSQL at "+f.db.address, true
	f.o.Report(e)
}

// connect opens a connection that is told of changes.
func (f *Follower) connect(ctx context.Context, patience time.Duration) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, f.db.pool.Config().ConnConfig)
	if err != nil {
		return nil, f.db.explain(err)
	}
	if _, err := conn.Exec(ctx, "LISTEN headgate"); err != nil {
		f.hangUp(ctx, conn)
		return nil, f.db.explain(err)
	}
	return conn, nil
}

// hangUp ends a connection; there may be none.
func (f *Follower) hangUp(ctx context.Context, conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it may be broken
}

func (f *Follower) run(ctx context.Context, conn *pgx.Conn) {
	defer close(f.stopped)
	for ctx.Err() == nil {
		err := f.next(ctx, &conn)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			f.purge(ctx)
		default:
			f.hangUp(ctx, conn)
			conn = nil
			f.trouble(err)
		}
	}
	if conn != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = pgdb.New(conn).ForgetNode(last, f.o.Node) // else it is seen to be gone
		cancel()
	}
	f.hangUp(ctx, conn)
}

// next waits for a change and takes it, over a new connection if there is none.
func (f *Follower) next(ctx context.Context, conn **pgx.Conn) (err error) {
	if *conn != nil {
		err = f.wait(ctx, *conn)
	} else {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryEvery):
		}
		*conn, err = f.connect(ctx, hostsTimeout)
	}
	if err != nil {
		return err
	}
	return f.look(ctx, *conn)
}

// purge removes once a day what nobody needs any more. Every node does, and it does not matter which.
func (f *Follower) purge(ctx context.Context) {
	if time.Since(f.purged) < purgeEvery {
		return
	}
	f.purged = time.Now()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := f.db.Purge(ctx, f.purged); err != nil {
		f.o.Log.Warn("what has expired is still in PostgreSQL", "address", f.db.address, "error", err)
	}
}

// wait until somebody says that something has changed, or it is time to look anyway.
func (f *Follower) wait(ctx context.Context, conn *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, pollEvery)
	defer cancel()
	_, err := conn.WaitForNotification(waiting)
	if waiting.Err() != nil {
		return nil // nobody said anything
	}
	return err
}

// trouble is told once for each reason.
func (f *Follower) trouble(err error) {
	if err.Error() == f.problem {
		return
	}
	f.problem = err.Error()
	f.say(ruledoc.Event{Kind: ruledoc.Rejected, Err: err})
}

// look takes what has changed into use. An error of the database comes back; one of what it says is told, and not an error.
func (f *Follower) look(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	tx, err := f.begin(ctx, conn)
	if err == nil {
		err = f.read(ctx, tx)
		if ended := tx.Rollback(ctx); err == nil { // there is nothing to commit
			err = ended
		}
	}
	if err != nil {
		return f.db.explain(err)
	}
	if f.problem == "" {
		f.checked.Store(time.Now().UnixMilli())
	}
	report, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// A database that cannot be written to can be read all the same.
	_ = pgdb.New(conn).ReportNode(report, pgdb.ReportNodeParams{
		Node: f.o.Node, Version: f.at.Version, Seq: f.at.Seq, Problem: f.problem, StartedAt: f.started,
	})
	return nil
}

// begin does not wait for long, since it is here that a server is found to hang.
func (f *Follower) begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
}

// read finds out what kind of change there is.
func (f *Follower) read(ctx context.Context, tx pgx.Tx) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	q := pgdb.New(tx)
	state, err := q.State(asking)
	if err != nil {
		return err
	}
	to := position{Version: state.Version, Seq: state.Seq, Mode: state.Mode}
	if to.Mark, err = markOf(asking, q, to.Seq); err != nil {
		return err
	}
	switch to {
	case f.at:
		f.recovered()
		return nil
	case f.denied:
		f.trouble(f.denial) // unless it was the last that was told
		return nil
	}
	then, err := markOf(asking, q, f.at.Seq)
	if err != nil {
		return err
	}
	switch {
	case to.Version < f.at.Version || to.Version == f.at.Version && to.Seq < f.at.Seq:
		f.trouble(fmt.Errorf("PostgreSQL at %s is at version %d and change %d, and this node has seen %d and %d: it was put back to an "+
			"earlier state, which is not taken; publish a version, and all nodes go there", f.db.address, to.Version, to.Seq,
			f.at.Version, f.at.Seq))
		return nil
	case f.at.Seq == 0 || then != f.at.Mark || f.at.Seq < state.Purged || f.keep.wantsAll():
		if f.at.Seq > 0 && then != f.at.Mark {
			f.o.Log.WarnContext(ctx, "PostgreSQL has another past than this node knows: all is read again", "address", f.db.address,
				"version", to.Version, "change", to.Seq)
		}
		return f.readAll(ctx, tx, to)
	}
	return f.readChanges(ctx, tx, to)
}

// markOf is what a change is known by; "" if there was none, or it is forgotten.
func markOf(ctx context.Context, q *pgdb.Queries, seq int64) (string, error) {
	mark, err := q.Mark(ctx, seq)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return mark, err
}

// recovered is that what is there is what is in use, after it was not.
func (f *Follower) recovered() {
	if f.problem != "" {
		f.problem = ""
		f.say(ruledoc.Event{Kind: ruledoc.Recovered})
	}
}
