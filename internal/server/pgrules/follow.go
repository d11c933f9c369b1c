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

// If a database server hangs, a node needs at most pollInterval + queryTimeout + retryInterval + connectTimeout to switch to another.
const (
	// pollInterval is how often a node reads the state without a notification.
	pollInterval = 3 * time.Second
	// retryInterval is the wait before a new connection after an error.
	retryInterval = time.Second
	// queryTimeout limits short queries, and loadTimeout a read of everything.
	queryTimeout = 3 * time.Second
	loadTimeout  = 5 * time.Minute
	// hostsTimeout limits connecting to one of several hosts, and startTimeout the first connection of a node that has a last
	// good state to start with.
	hostsTimeout  = 4 * connectTimeout
	startTimeout  = 2 * time.Second
	purgeInterval = 24 * time.Hour
)

// FollowOptions configure a Follower.
type FollowOptions struct {
	// Limiter receives the rules, overrides and exemptions.
	Limiter *headgate.Limiter
	// Mode caps the mode of all rules, whatever the mode in the database is.
	Mode headgate.Mode
	// LastGoodFile is the file for the last good state. A node starts from it if the database is unavailable. With "" it cannot.
	LastGoodFile string
	// Node is the name of the node in its reports to the database.
	Node string
	// Report receives all events that operators should know about. Calls do not overlap.
	Report func(ruledoc.Event)
	// Log receives warnings about single invalid overrides and exemptions, and about a database that cannot be written.
	Log *slog.Logger
}

// Follower keeps the rules, overrides and exemptions in use on a node in sync with the database.
type Follower struct {
	db      *DB
	o       FollowOptions
	started time.Time
	stopped chan struct{}

	at          position // of the state in use
	rejected    position // of the state that was rejected last
	rejection   error    // why it was rejected
	unreported  bool     // whether the last report to the database failed
	rules       ruleSet
	version     string // of the rules in use, in readable form
	problem     string // why the state in use is not that of the database
	lastGood    *lastGoodFile
	saveProblem string // the last reported error of saving the last good state
	reported    bool   // an event was reported
	purged      time.Time

	checked atomic.Int64 // in milliseconds since 1970
}

// position identifies a state of the database.
type position struct {
	Version int64  `json:"version"`
	Seq     int64  `json:"seq"`
	Mark    string `json:"mark"`
	Mode    string `json:"mode"`
}

// Follow puts the state of the database in force, and every change of it until ctx ends. If the database is unavailable at the start,
// the last good state is used. Follow fails only if there is none either.
func (db *DB) Follow(ctx context.Context, o FollowOptions) (*Follower, error) {
	f := &Follower{
		db: db, o: o, started: time.Now(), purged: time.Now(), stopped: make(chan struct{}),
		rules: ruleSet{}, lastGood: &lastGoodFile{path: o.LastGoodFile},
	}
	f.checked.Store(f.started.UnixMilli())
	lastGoodErr := f.startFromLastGood(ctx)
	if errors.Is(lastGoodErr, fs.ErrNotExist) {
		lastGoodErr = nil // the first start
	}
	timeout := hostsTimeout
	if f.version != "" {
		timeout = startTimeout
	}
	conn, err := f.connect(ctx, timeout)
	if err == nil {
		err = f.sync(ctx, conn)
	}
	switch {
	case f.version == "" && err == nil:
		f.closeConn(ctx, conn)
		return nil, fmt.Errorf("no usable rules: %s", f.problem)
	case f.version == "":
		f.closeConn(ctx, conn)
		return nil, errors.Join(fmt.Errorf("no usable rules: %w", err), lastGoodErr)
	case err != nil:
		f.problem = err.Error()
		f.report(ruledoc.Event{Kind: ruledoc.StartedFromLastGood, Err: err, LastGoodFile: o.LastGoodFile, LastGoodTime: f.lastGood.since})
	}
	if !f.reported { // the last good state is that of the database
		f.report(ruledoc.Event{Kind: ruledoc.Applied})
	}
	if f.lastGood.path != "" {
		f.reportSave(lastGoodErr)
	}
	go f.run(ctx, conn)
	return f, nil
}

// Checked returns when the state in use was last confirmed to be that of the database, or the time of the start before that.
func (f *Follower) Checked() time.Time { return time.UnixMilli(f.checked.Load()) }

// Wait waits until the Follower has stopped, after the context of Follow has ended.
func (f *Follower) Wait() { <-f.stopped }

// report reports an event with the version in use and the address of the database.
func (f *Follower) report(e ruledoc.Event) {
	e.Version, e.Source, f.reported = f.version, "PostgreSQL at "+f.db.address, true
	f.o.Report(e)
}

// connect opens a connection that receives notifications of changes.
func (f *Follower) connect(ctx context.Context, timeout time.Duration) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, f.db.pool.Config().ConnConfig)
	if err != nil {
		return nil, f.db.explain(err)
	}
	if _, err := conn.Exec(ctx, "LISTEN headgate"); err != nil {
		f.closeConn(ctx, conn)
		return nil, f.db.explain(err)
	}
	return conn, nil
}

// closeConn closes a connection, which may be nil.
func (f *Follower) closeConn(ctx context.Context, conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the connection may be broken
}

// run applies changes until ctx ends, and then removes the node's report from the database.
func (f *Follower) run(ctx context.Context, conn *pgx.Conn) {
	defer close(f.stopped)
	for ctx.Err() == nil {
		err := f.next(ctx, &conn)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			f.purge(ctx)
		default:
			f.closeConn(ctx, conn)
			conn = nil
			f.reportProblem(err)
		}
	}
	if conn != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = pgdb.New(conn).ForgetNode(last, f.o.Node) // otherwise its row ages
		cancel()
	}
	f.closeConn(ctx, conn)
}

// next waits for a change and applies it. Without a connection it connects instead of waiting.
func (f *Follower) next(ctx context.Context, conn **pgx.Conn) (err error) {
	if *conn != nil {
		err = f.wait(ctx, *conn)
	} else {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryInterval):
		}
		*conn, err = f.connect(ctx, hostsTimeout)
	}
	if err != nil {
		return err
	}
	return f.sync(ctx, *conn)
}

// purge deletes expired and removed rows once a day. Every node does so, which is harmless.
func (f *Follower) purge(ctx context.Context) {
	if time.Since(f.purged) < purgeInterval {
		return
	}
	f.purged = time.Now()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := f.db.Purge(ctx, f.purged); err != nil {
		f.o.Log.Warn("purge of expired rows failed; retrying in 24 hours", "address", f.db.address, "error", err)
	}
}

// wait waits for a notification of a change, up to pollInterval.
func (f *Follower) wait(ctx context.Context, conn *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, pollInterval)
	defer cancel()
	_, err := conn.WaitForNotification(waiting)
	if waiting.Err() != nil {
		return nil // no notification
	}
	return err
}

// reportProblem reports why the state of the database is not in use, once for each reason.
func (f *Follower) reportProblem(err error) {
	if err.Error() == f.problem {
		return
	}
	f.problem = err.Error()
	f.report(ruledoc.Event{Kind: ruledoc.Rejected, Err: err})
}

// sync puts changes in force. It returns errors of the database. A state that is invalid is reported, but is not an error.
func (f *Follower) sync(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	tx, err := f.begin(ctx, conn)
	if err == nil {
		err = f.read(ctx, tx)
		if ended := tx.Rollback(ctx); err == nil { // nothing to commit
			err = ended
		}
	}
	if err != nil {
		return f.db.explain(err)
	}
	if f.problem == "" {
		f.checked.Store(time.Now().UnixMilli())
	}
	reportCtx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	// An error changes nothing else, since a read-only database is good enough for a node.
	err = pgdb.New(conn).ReportNode(reportCtx, pgdb.ReportNodeParams{
		Node: f.o.Node, Version: f.at.Version, Seq: f.at.Seq, Problem: f.problem, StartedAt: f.started,
	})
	if err != nil && !f.unreported {
		f.o.Log.WarnContext(ctx, "cannot write to PostgreSQL: this node follows the rules, but headgate nodes does not show it, and usage is not recorded",
			"error", f.db.explain(err))
	}
	f.unreported = err != nil
	return nil
}

// begin begins a transaction. Its timeout is short, since this is where a hanging server is detected.
func (f *Follower) begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
}

// read compares the state of the database with that in use, and applies what differs.
func (f *Follower) read(ctx context.Context, tx pgx.Tx) error {
	queryCtx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	q := pgdb.New(tx)
	state, err := q.State(queryCtx)
	if err != nil {
		return err
	}
	to := position{Version: state.Version, Seq: state.Seq, Mode: state.Mode}
	if to.Mark, err = markOf(queryCtx, q, to.Seq); err != nil {
		return err
	}
	switch to {
	case f.at:
		f.recovered()
		return nil
	case f.rejected:
		f.reportProblem(f.rejection) // unless it was the last problem reported
		return nil
	}
	then, err := markOf(queryCtx, q, f.at.Seq)
	if err != nil {
		return err
	}
	switch {
	case to.Version < f.at.Version || to.Version == f.at.Version && to.Seq < f.at.Seq:
		f.reportProblem(fmt.Errorf("PostgreSQL at %s: version %d, change %d is older than version %d, change %d of this node: the database "+
			"was restored to an earlier state, which is not applied; publish a version to move all nodes to it", f.db.address, to.Version,
			to.Seq, f.at.Version, f.at.Seq))
		return nil
	case f.at.Seq == 0 || then != f.at.Mark || f.at.Seq < state.Purged || f.lastGood.needsSnapshot():
		if f.at.Seq > 0 && then != f.at.Mark {
			f.o.Log.WarnContext(ctx, "history of PostgreSQL differs from this node's; reading everything again", "address", f.db.address,
				"version", to.Version, "change", to.Seq)
		}
		return f.readAll(ctx, tx, to)
	}
	return f.readChanges(ctx, tx, to)
}

// markOf returns the random mark of a change. It returns "" if there was no such change, or it was purged.
func markOf(ctx context.Context, q *pgdb.Queries, seq int64) (string, error) {
	mark, err := q.Mark(ctx, seq)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return mark, err
}

// recovered reports that the state of the database is in use again.
func (f *Follower) recovered() {
	if f.problem != "" {
		f.problem = ""
		f.report(ruledoc.Event{Kind: ruledoc.Recovered})
	}
}
