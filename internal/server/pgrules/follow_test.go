package pgrules_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/ruledoc"
)

// node follows a database until it is stopped.
type node struct {
	t        *testing.T
	limiter  *headgate.Limiter
	lastGood string
	log      testenv.Log
	stop     context.CancelFunc
	wait     func()
	checked  func() time.Time

	mu     sync.Mutex
	events []ruledoc.Event
}

func newNode(t *testing.T, lastGood string) *node {
	t.Helper()
	none, err := headgate.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return &node{t: t, limiter: headgate.NewLimiter(memstore.New(memstore.Options{}), none, headgate.Options{}), lastGood: lastGood}
}

func (n *node) start(db *pgrules.DB) error {
	ctx, stop := context.WithCancel(n.t.Context())
	f, err := db.Follow(ctx, pgrules.FollowOptions{
		Limiter: n.limiter, LastGoodFile: n.lastGood, Node: "node", Log: slog.New(slog.NewTextHandler(&n.log, nil)),
		Report: func(e ruledoc.Event) {
			n.mu.Lock()
			n.events = append(n.events, e)
			n.mu.Unlock()
		},
	})
	if err != nil {
		stop()
		return err
	}
	n.stop, n.wait, n.checked = stop, f.Wait, f.Checked
	n.t.Cleanup(func() { stop(); f.Wait() })
	return nil
}

func follow(t *testing.T, db *pgrules.DB, lastGood string) *node {
	t.Helper()
	n := newNode(t, lastGood)
	if err := n.start(db); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) end() { n.stop(); n.wait() }

// last returns the kind of the last event, and its error.
func (n *node) last() (ruledoc.EventKind, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.events) == 0 {
		return 99, ""
	}
	e := n.events[len(n.events)-1]
	return e.Kind, fmt.Sprint(e.Err)
}

// limit returns the limit of a rule for a user.
func (n *node) limit(rule, user string) string {
	d, _ := n.limiter.Peek(context.Background(), headgate.Request{Attributes: headgate.Attributes{"user": user}})
	for i := range d.Limits {
		if d.Limits[i].Rule == rule {
			return d.Limits[i].Limit.String()
		}
	}
	return "none"
}

// until waits until a condition is true.
func (n *node) until(what string, condition func() bool) {
	n.t.Helper()
	for end := time.Now().Add(15 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			kind, err := n.last()
			n.t.Fatalf("%s: not after 15 s; last event %s: %s", what, kind, err)
		}
	}
}

func (n *node) untilLimit(rule, user, want string) {
	n.t.Helper()
	n.until(rule+" of "+user+" is "+want, func() bool { return n.limit(rule, user) == want })
}

// A node loads the state of the database and applies every kind of change.
func TestFollowAppliesEveryChange(t *testing.T) {
	t.Parallel()
	db, server := newDB(t)
	n := follow(t, db, "")
	if kind, _ := n.last(); kind != ruledoc.Applied {
		t.Errorf("%s without any rule", kind)
	}
	put(t, db, document("a", "10/minute"))
	n.untilLimit("a", "ann", "10/minute")
	override := pgrules.Override{Rule: "a", Subject: headgate.Attributes{"user": "ann"}, Limit: "500/minute"}
	if _, err := db.SetOverrides(t.Context(), ann, []pgrules.Override{override}); err != nil {
		t.Fatal(err)
	}
	n.untilLimit("a", "ann", "500/minute")
	// An override takes the algorithm of its rule, also when that changes.
	put(t, db, `{"id": "a", "by": ["user"], "limit": "20/minute", "algorithm": "fixed_window"}`)
	n.untilLimit("a", "bob", "20/minute, fixed_window")
	if got := n.limit("a", "ann"); got != "500/minute, fixed_window" {
		t.Errorf("overridden: %s", got)
	}
	if err := sql(t, server, "DELETE FROM rate_limit_overrides"); err != nil {
		t.Fatal(err)
	}
	n.untilLimit("a", "ann", "20/minute, fixed_window")
	x, err := db.AddExemption(t.Context(), ann, pgrules.Exemption{Rule: "a", SubjectType: "user", SubjectValue: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	n.untilLimit("a", "ann", "none")
	if err := db.RemoveExemption(t.Context(), ann, x.ID); err != nil {
		t.Fatal(err)
	}
	n.untilLimit("a", "ann", "20/minute, fixed_window")
	if err := sql(t, server, fmt.Sprintf(flatRule, "hand")); err != nil {
		t.Fatal(err)
	}
	n.untilLimit("hand", "ann", "10/minute")
	if _, err := publish(t, db, pgrules.Edit{Name: "hand", Revision: pgrules.AnyRevision}); err != nil {
		t.Fatal(err)
	}
	n.untilLimit("hand", "ann", "none")
	n.until("the node reports its version", func() bool {
		nodes, err := db.Nodes(t.Context())
		return err == nil && len(nodes) == 1 && nodes[0].Version == 4 && nodes[0].Problem == ""
	})
}

// A node that may not write follows the rules as before, and says once that it cannot report itself.
func TestFollowReadOnly(t *testing.T) {
	t.Parallel()
	db, server := newDB(t)
	put(t, db, document("a", "10/minute"))
	readOnly, err := pgrules.Open(server.URL()+"&default_transaction_read_only=on", "")
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	if _, err := readOnly.SetOverrides(t.Context(), ann, []pgrules.Override{{Rule: "a", Subject: headgate.Attributes{"user": "ann"}, Limit: "1/minute"}}); !errors.Is(err, pgrules.ErrReadOnly) {
		t.Errorf("a change: %v", err)
	}
	n := follow(t, readOnly, "")
	n.untilLimit("a", "ann", "10/minute")
	put(t, db, document("a", "20/minute"))
	n.untilLimit("a", "ann", "20/minute")
	n.until("a warning", func() bool { return strings.Contains(n.log.String(), "headgate nodes does not show it") })
	if got := strings.Count(n.log.String(), "cannot write to PostgreSQL"); got != 1 {
		t.Errorf("%d warnings, want 1:\n%s", got, n.log.String())
	}
}

// Nodes reject invalid or harmful rules that were written by hand. The rules in use stay until the tables are corrected.
func TestNodesRejectHarmfulRules(t *testing.T) {
	t.Parallel()
	db, server := newServer(t)
	put(t, db, document("a", "10/minute"))
	lastGood := filepath.Join(t.TempDir(), "state")
	n := follow(t, db, lastGood)
	for statement, want := range map[string]string{
		"UPDATE rate_limit_rules SET enabled = false": "no rule would remain",
		`UPDATE rate_limit_rules SET document = '{"id": "a", "by": [], "limit": "1/day"}', max_requests = 1, window_seconds = 86400`: "deny all clients",
		`UPDATE rate_limit_rules SET document = '{"id": "a", "by": ["user"], "limit": "often"}'`:                                     "often",
		`UPDATE rate_limit_rules SET document = '{"id": "a", "by": ["user"], "limit": "30/minute"}'`:                                 "columns and document differ",
	} {
		if err := sql(t, server, statement); err != nil {
			t.Fatal(err)
		}
		n.until(want, func() bool {
			kind, err := n.last()
			return kind == ruledoc.Rejected && strings.Contains(err, want)
		})
		if got := n.limit("a", "ann"); got != "10/minute" {
			t.Errorf("%s: %s is in use", want, got)
		}
		// A node that starts now does not apply it either.
		again := follow(t, db, lastGood)
		if kind, err := again.last(); kind != ruledoc.Rejected || !strings.Contains(err, want) || again.limit("a", "ann") != "10/minute" {
			t.Errorf("started: %s: %s", kind, err)
		}
		again.end()
		if err := newNode(t, "").start(db); err == nil || !strings.Contains(err.Error(), "no usable rules") || !strings.Contains(err.Error(), want) {
			t.Errorf("started without a last good state: %v", err)
		}
		if err := sql(t, server, `UPDATE rate_limit_rules SET enabled = true, scope = 'global', algorithm = 'token_bucket', max_requests = 10,
			window_seconds = 60, document = '{"id": "a", "by": ["user"], "limit": "10/minute"}'`); err != nil {
			t.Fatal(err)
		}
		n.until("corrected", func() bool { kind, _ := n.last(); return kind == ruledoc.Applied })
	}
	// The reason is reported again after the database was unavailable.
	if err := sql(t, server, "UPDATE rate_limit_rules SET enabled = false"); err != nil {
		t.Fatal(err)
	}
	rejected := func(yes bool) {
		t.Helper()
		n.until("rejected", func() bool {
			kind, err := n.last()
			return kind == ruledoc.Rejected && strings.Contains(err, "no rule would remain") == yes
		})
	}
	rejected(true)
	server.Kill()
	rejected(false)
	server.Restart(t)
	rejected(true)
}

// A node continues and starts without the database.
func TestNodeWithoutDatabase(t *testing.T) {
	t.Parallel()
	db, server := newServer(t)
	put(t, db, document("a", "10/minute"))
	lastGood := filepath.Join(t.TempDir(), "state")
	n := follow(t, db, lastGood)
	override := func(user, text string) {
		t.Helper()
		o := pgrules.Override{Rule: "a", Subject: headgate.Attributes{"user": user}, Limit: text}
		if _, err := db.SetOverrides(t.Context(), ann, []pgrules.Override{o}); err != nil {
			t.Fatal(err)
		}
		n.untilLimit("a", user, text)
	}
	override("ann", "100/minute")
	override("bob", "200/minute")
	override("ann", "300/minute")
	put(t, db, document("a", "20/minute"))
	n.untilLimit("a", "eve", "20/minute")
	server.Kill()
	n.until("the problem is reported", func() bool { kind, _ := n.last(); return kind == ruledoc.Rejected })
	checked := n.checked()
	unchanged := func(n *node) {
		t.Helper()
		for user, want := range map[string]string{"ann": "300/minute", "bob": "200/minute", "eve": "20/minute"} {
			if got := n.limit("a", user); got != want {
				t.Errorf("%s has %s, want %s", user, got, want)
			}
		}
	}
	unchanged(n)
	again := follow(t, db, lastGood)
	if kind, err := again.last(); kind != ruledoc.StartedFromLastGood {
		t.Errorf("%s: %s", kind, err)
	}
	unchanged(again)
	// Uncommitted lines are ignored, and a damaged file is rejected.
	again.end()
	data, err := os.ReadFile(lastGood)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, lastGood, append(data, `0badc0de {"override":{"rule_id":1,"subject":"{\"user\":\"eve\"}","text":"1/day"}}`+"\n"...))
	again = follow(t, db, lastGood)
	unchanged(again)
	again.end()
	damaged := filepath.Join(t.TempDir(), "damaged")
	writeFile(t, damaged, data[:40])
	if err := newNode(t, damaged).start(db); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
	if since := time.Since(checked); !n.checked().Equal(checked) || since > time.Minute {
		t.Errorf("without the database, the last check was %v ago, then %v", since, time.Since(n.checked()))
	}
	server.Restart(t)
	n.until("recovered", func() bool { kind, _ := n.last(); return kind == ruledoc.Recovered })
	n.until("checked again", func() bool { return n.checked().After(checked) })
	put(t, db, document("a", "30/minute"))
	n.untilLimit("a", "eve", "30/minute")
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Nodes do not apply the state of a database that was restored to an earlier state. They apply the next version.
func TestRestoredDatabaseIsNotApplied(t *testing.T) {
	t.Parallel()
	db, server := newServer(t)
	put(t, db, document("a", "10/minute"))
	server.Save(t)
	lastGood := filepath.Join(t.TempDir(), "state")
	n := follow(t, db, lastGood)
	for i := range 3 {
		put(t, db, document("a", fmt.Sprintf("%d/minute", 20+i)))
	}
	n.untilLimit("a", "ann", "22/minute")
	server.Load(t)
	older := func(n *node) {
		t.Helper()
		n.until("the problem is reported", func() bool {
			kind, err := n.last()
			return kind == ruledoc.Rejected && strings.Contains(err, "earlier state")
		})
		if got := n.limit("a", "ann"); got != "22/minute" {
			t.Errorf("%s is in use", got)
		}
	}
	older(n)
	n.end()
	n = follow(t, db, lastGood)
	older(n)
	n.until("the node reports the problem", func() bool {
		nodes, err := db.Nodes(t.Context())
		return err == nil && len(nodes) == 1 && nodes[0].Version == 4 && strings.Contains(nodes[0].Problem, "earlier state")
	})
	if version := put(t, db, document("a", "50/minute")); version != 5 {
		t.Errorf("version %d, want one above all that nodes have reported", version)
	}
	n.untilLimit("a", "ann", "50/minute")
}

// Decisions and starts do not wait for a database that hangs.
func TestPausedDatabase(t *testing.T) {
	t.Parallel()
	db, server := newServer(t)
	put(t, db, document("a", "10/minute"))
	lastGood := filepath.Join(t.TempDir(), "state")
	n := follow(t, db, lastGood)
	server.Pause()
	began := time.Now()
	for range 1000 {
		if got := n.limit("a", "ann"); got != "10/minute" {
			t.Fatal(got)
		}
	}
	if elapsed := time.Since(began); elapsed > time.Second {
		t.Errorf("1000 decisions took %v", elapsed)
	}
	began = time.Now()
	again := follow(t, db, lastGood)
	if elapsed := time.Since(began); elapsed > 4*time.Second {
		t.Errorf("the start took %v", elapsed)
	}
	if kind, err := again.last(); kind != ruledoc.StartedFromLastGood {
		t.Errorf("%s: %s", kind, err)
	}
	again.end()
	// The node notices, so that it would connect to a server that replaces this one.
	n.until("the problem is reported", func() bool { kind, _ := n.last(); return kind == ruledoc.Rejected })
	server.Resume()
	put(t, db, document("a", "20/minute"))
	n.untilLimit("a", "ann", "20/minute")
}

// Rows that were removed long ago are purged, and a node that was disconnected all the time applies their removal all the same.
func TestPurge(t *testing.T) {
	t.Parallel()
	db, server := newDB(t)
	put(t, db, document("a", "10/minute"))
	inOneHour := time.Now().Add(time.Hour)
	for user, expires := range map[string]*time.Time{"ann": nil, "bob": &inOneHour, "eve": nil} {
		o := pgrules.Override{Rule: "a", Subject: headgate.Attributes{"user": user}, Limit: "500/minute", ExpiresAt: expires}
		if _, err := db.SetOverrides(t.Context(), ann, []pgrules.Override{o}); err != nil {
			t.Fatal(err)
		}
	}
	lastGood := filepath.Join(t.TempDir(), "state")
	n := follow(t, db, lastGood)
	n.untilLimit("a", "ann", "500/minute")
	n.end()
	if err := sql(t, server, `DELETE FROM rate_limit_overrides WHERE subject LIKE '%ann%'`); err != nil {
		t.Fatal(err)
	}
	for _, days := range []int{8, 16} { // bob's is removed first, then purged as ann's
		if err := db.Purge(t.Context(), time.Now().AddDate(0, 0, days)); err != nil {
			t.Fatal(err)
		}
	}
	if left := one[string](t, server, "SELECT string_agg(subject, ' ') FROM rate_limit_overrides"); left != `{"user":"eve"}` {
		t.Errorf("left is %s", left)
	}
	n = follow(t, db, lastGood)
	for user, want := range map[string]string{"ann": "10/minute", "bob": "10/minute", "eve": "500/minute"} {
		if got := n.limit("a", user); got != want {
			t.Errorf("%s has %s, want %s", user, got, want)
		}
	}
}
