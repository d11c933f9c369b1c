package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/meter"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// controlPlane is a PostgreSQL with two servers, and callers of their admin APIs.
type controlPlane struct {
	t        *testing.T
	postgres *testenv.Postgres
	admins   []string // addresses of the admin APIs
	nodes    []*fleet.Node
	operator string   // token without a tenant
	editors  []string // tokens of tenant acme
}

func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	c := &controlPlane{t: t, postgres: testenv.StartPostgres(t)}
	redis := startRedis(t)
	var lines []string
	token := func(name string, rights ...string) string {
		secret, line, err := adminapi.NewToken(name, rights...)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
		return secret
	}
	c.operator = token("ann", "editor")
	for i := range 8 {
		c.editors = append(c.editors, token(fmt.Sprintf("eve%d", i), "editor", "tenant=acme"))
	}
	for i := range 2 {
		node := fleet.New(t, headgateProgram(t), "", map[string]string{"tokens": strings.Join(lines, "\n")})
		admin := testenv.FreeAddress(t)
		config := fmt.Sprintf("listen: {http: %q, grpc: off, ops: %q, admin: %q}\nredis: {address: redis://%s}\npostgres: {address: %q}\n"+
			"admin: {tokens_file: tokens}\n", node.HTTP, node.Ops, admin, redis.Addr(), c.postgres.URL())
		node.Write("config.yaml", config)
		if i == 0 {
			migrate := exec.CommandContext(t.Context(), headgateProgram(t), "migrate", "--config", filepath.Join(node.Dir, "config.yaml"))
			if out, err := migrate.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			c.publish(`{"id": "ours", "by": ["tenant"], "limit": "1000000/minute"}`)
		}
		node.Start()
		c.nodes, c.admins = append(c.nodes, node), append(c.admins, admin)
	}
	return c
}

// publish publishes a rule as an operator.
func (c *controlPlane) publish(document string) {
	c.t.Helper()
	db := c.open()
	d, err := pgrules.Define([]byte(document))
	if err == nil {
		_, err = db.Publish(c.t.Context(), pgrules.Who{Name: "ann"}, pgrules.Change{
			Edits: []pgrules.Edit{{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision}},
		})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *controlPlane) open() *pgrules.DB {
	c.t.Helper()
	db, err := pgrules.Open(c.postgres.URL(), "")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(db.Close)
	return db
}

// send sends a request to the admin API of a server, and retries while the response is 429 or 409.
func (c *controlPlane) send(server int, token, method, path, body string) (status int, detail string) {
	c.t.Helper()
	for {
		r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.admins[server%len(c.admins)]+"/v1/rate-limit"+path, strings.NewReader(body))
		if err != nil {
			c.t.Error(err)
			return 0, ""
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("If-Match", "*")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			c.t.Error(err)
			return 0, ""
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusConflict || response.StatusCode == http.StatusTooManyRequests {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		return response.StatusCode, string(text)
	}
}

// count returns the result of a query that returns one number.
func (c *controlPlane) count(query string) (n int) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.postgres.URL())
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(c.t.Context())
	if err := conn.QueryRow(c.t.Context(), query).Scan(&n); err != nil {
		c.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// writeConcurrently has all editors write concurrently through both servers, and returns how many writes were accepted and the
// response to one that was rejected.
func (c *controlPlane) writeConcurrently(tries int, write func(server int, token string, i int) (int, string)) (accepted int, rejection string) {
	c.t.Helper()
	var all sync.WaitGroup
	var done atomic.Int32
	var why atomic.Value
	for worker, token := range c.editors {
		all.Go(func() {
			for i := worker; i < tries; i += len(c.editors) {
				switch status, text := write(worker, token, i); status {
				case http.StatusOK, http.StatusCreated:
					done.Add(1)
				case http.StatusUnprocessableEntity:
					why.Store(text)
				default:
					c.t.Errorf("%d: %s", status, text)
				}
			}
		})
	}
	all.Wait()
	rejection, _ = why.Load().(string)
	return int(done.Load()), rejection
}

// TestTenantFillsTheTables: a tenant's editors fill the tables from many connections and two servers concurrently.
func TestTenantFillsTheTables(t *testing.T) {
	c := startControlPlane(t)
	rule := func(id string) string {
		return fmt.Sprintf(`{"id": %q, "by": ["tenant", "user"], "limit": "1000/minute"}`, id)
	}
	for i := range 92 {
		if status, text := c.send(i, c.editors[i%8], "POST", "/rules", rule(fmt.Sprintf("r%d", i))); status != http.StatusCreated {
			t.Fatalf("%d: %s", status, text)
		}
	}
	accepted, rejection := c.writeConcurrently(size(24, 200), func(server int, token string, i int) (int, string) {
		return c.send(server, token, "POST", "/rules", rule(fmt.Sprintf("x%d", i)))
	})
	t.Logf("rules: 92 and %d more; rejected: %s", accepted, rejection)
	if n := c.count("SELECT count(*) FROM rate_limit_rules WHERE owner = 'acme'"); n != 100 {
		t.Errorf("%d rules, want 100", n)
	}
	wantWords(t, rejection, "quota of tenant acme", "has 100 rules", "at most 100", "operator", "tenants.max_rules")

	// 20 batches of 900: the quota allows 11.
	accepted, rejection = c.writeConcurrently(20, func(server int, token string, i int) (int, string) {
		var all []string
		for j := range 900 {
			all = append(all, fmt.Sprintf(`{"rule": "r0", "subject": {"tenant": "acme", "user": "u%d"}, "limit": "5/minute"}`, 900*i+j))
		}
		return c.send(server, token, "POST", "/overrides", `{"overrides": [`+strings.Join(all, ",")+`]}`)
	})
	n := c.count("SELECT count(*) FROM rate_limit_overrides WHERE removed_at IS NULL")
	t.Logf("overrides: %d batches of 900 accepted, %d overrides; rejected: %s", accepted, n, rejection)
	if accepted != 11 || n != 9900 {
		t.Errorf("%d batches and %d overrides, want 11 and 9900", accepted, n)
	}
	accepted, rejection = c.writeConcurrently(size(120, 300), func(server int, token string, i int) (int, string) {
		return c.send(server, token, "POST", "/rules/r0/exemptions", fmt.Sprintf(`{"subjectType": "user", "subjectValue": "u%d"}`, i))
	})
	t.Logf("exemptions: %d accepted; rejected: %s", accepted, rejection)
	if accepted != 100 {
		t.Errorf("%d exemptions in addition to 9900 overrides, want 100", accepted)
	}
	wantWords(t, rejection, "overrides and exemptions", "at most 10000", "tenants.max_exceptions")
	// The quota does not apply to operators.
	if status, text := c.send(0, c.operator, "POST", "/rules/r0/exemptions", `{"subjectType": "user", "subjectValue": "ops"}`); status != http.StatusCreated {
		t.Errorf("an operator: %d: %s", status, text)
	}
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s\nwant %q", text, w)
		}
	}
}

// TestTenantMakesDecisionsSlow: a tenant's editor publishes rules that make each request slow on servers that all tenants share.
func TestTenantMakesDecisionsSlow(t *testing.T) {
	c := startControlPlane(t)
	publish := func(id, keys string) (int, string) {
		return c.send(0, c.editors[0], "POST", "/rules", fmt.Sprintf(`{"id": %q, "by": ["tenant"], %s}`, id, keys))
	}
	for i, expression := range []string{
		`(a?){40}b$`, `(?:a?){40}b$`, `([a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*)*!`, `(a|b|ab|ba|aab|bba|abab){3}$`,
		`[ab]*a[ab]{40}$`, `(?:[ab]?){15}(?:[ab]?){15}!`,
	} {
		for j, attribute := range []string{"path", "user_agent", "header['x-app']"} {
			id := fmt.Sprintf("slow-%d-%d", i, j)
			when, _ := json.Marshal(fmt.Sprintf("%s.matches(%q)", attribute, expression))
			status, text := publish(id, fmt.Sprintf(`"limit": "1000/minute", "when": %s`, when))
			if status != http.StatusUnprocessableEntity {
				rule, err := pgrules.Define(fmt.Appendf(nil, `{"id": "r", "by": [], "limit": "1/s", "when": %s}`, when))
				if err != nil {
					t.Fatal(err)
				}
				long := strings.Repeat("ab", 4<<10)
				start := time.Now()
				rule.Rule.When.Holds(headgate.Attributes{"path": long, "user_agent": long, "header.x-app": long})
				t.Errorf("%s.matches(%q): accepted, and takes %s", attribute, expression, time.Since(start))
				continue
			}
			wantWords(t, text, id, "estimated cost", "must be at most 150000", "use startsWith")
		}
	}
	// Rules that are accepted one by one exceed the quota together.
	limits := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"l%d": "1000/minute"`, i)
		}
		return strings.Join(all, ",")
	}
	status, text := publish("heavy", fmt.Sprintf(`"limits": {%s}`, limits(256)))
	if status != http.StatusUnprocessableEntity {
		t.Errorf("256 limits: %d: %s", status, text)
	}
	wantWords(t, text, "weight 256", "at most 64")
	accepted, rejection := 0, ""
	for i := range 6 {
		if status, text := publish(fmt.Sprintf("heavy-%d", i), fmt.Sprintf(`"when": "path != \"\"", "limits": {%s}`, limits(60))); status == http.StatusCreated {
			accepted++
		} else {
			rejection = text
		}
	}
	t.Logf("rules of 60 limits: %d accepted; rejected: %s", accepted, rejection)
	if accepted != 3 {
		t.Errorf("%d rules of 60 limits that match one request, want 3", accepted)
	}
	wantWords(t, rejection, "at most 200", "tenants.max_limits")
	accepted = 0
	for i := range 10 {
		if status, text := publish(fmt.Sprintf("regexp-%d", i), `"limit": "1000/minute", "when": "path.matches(\"(?i)bot|crawler|spider\") || user_agent.matches(\"(?i)bot|crawler|spider\")"`); status == http.StatusCreated {
			accepted++
		} else {
			rejection = text
		}
	}
	t.Logf("conditions of 100352 steps: %d accepted; rejected: %s", accepted, rejection)
	if accepted != 5 {
		t.Errorf("%d conditions of 100352 steps, want 5", accepted)
	}
	wantWords(t, rejection, "at most 600000", "tenants.max_condition_steps")
}

// TestTenantMetersEverything: a tenant meters a rule by values that its clients choose, and each value becomes a row of the
// billing table.
func TestTenantMetersEverything(t *testing.T) {
	postgres := testenv.StartPostgres(t)
	c := &controlPlane{t: t, postgres: postgres}
	db := c.open()
	if _, _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := pgrules.Define([]byte(`{"id": "api", "by": ["tenant", "user"], "match": {"tenant": "acme"}, "limit": "1000/minute", "meter": true}`))
	if err != nil {
		t.Fatal(err)
	}
	d.Owner = "acme"
	if _, err := db.Publish(t.Context(), pgrules.Who{Name: "eve", Tenant: "acme"}, pgrules.Change{Edits: []pgrules.Edit{{Name: "api", Put: d}}}); err != nil {
		t.Fatal(err)
	}
	const nodes, each = 3, 6_000
	var all sync.WaitGroup
	var lost atomic.Int64 // on a machine that is too slow for the timeout of a write, which may have been recorded or not
	for node := range nodes {
		own := c.open()
		all.Go(func() {
			limiter := newLimiter(t, openStore(t, startRedis(t)), d.Rule)
			m := meter.New(limiter, own.AddUsage, quiet())
			decision, err := limiter.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"tenant": "acme", "user": "first"}})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range each { // each like a request of another client
				user := fmt.Sprintf("made-up-%d-%d", node, i)
				decision.Limits[0].Subject = headgate.SubjectOf("acme", user)
				m.Note(&headgate.Observation{
					Call: headgate.CallCheck, Decision: decision, Attributes: headgate.Attributes{"tenant": "acme", "user": user},
				})
			}
			for range 5 { // on a slow machine, a node writes the rest at its next interval
				m.Run(ended(t))
			}
			lost.Add(m.Lost())
		})
	}
	all.Wait()
	rows, units := c.count("SELECT count(*) FROM usage_daily"), c.count("SELECT sum(units) FROM usage_daily WHERE attributes LIKE '%\"tenant\":\"acme\"%'")
	t.Logf("%d subjects on %d nodes: %d rows of usage, %d units, %d may be lost", nodes*each, nodes, rows, units, lost.Load())
	if rows > 10_001 || units > nodes*each || units < nodes*each-int(lost.Load()) || lost.Load() == 0 && rows != 10_001 {
		t.Errorf("%d rows with %d units, want 10001 with %d", rows, units, nodes*each)
	}
}

// ended returns a cancelled context.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
