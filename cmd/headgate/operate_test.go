package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// controlPlane is a server with PostgreSQL and Redis, and the flags of an admin who manages it.
type controlPlane struct {
	*testServer
	t        *testing.T
	dir      string
	args     []string
	postgres *testenv.Postgres
}

func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	o := &controlPlane{t: t, dir: t.TempDir(), postgres: testenv.StartPostgres(t)}
	config := o.file("config.yaml", fmt.Sprintf(
		"%sredis: {address: redis://%s, deadline: 1s}\npostgres: {address: %q}\nadmin: {tokens_file: tokens}\n", anyPorts, testenv.Start(t, testenv.Redis).Addr(), o.postgres.URL()))
	token := startJSON[tokenReport](t, 0, "token", "create", "ann", "--role", "admin")
	o.file("tokens", token.Line)
	if r := startJSON[migrateReport](t, 0, "migrate", "--config", config); r.From != 0 || r.To < 1 {
		t.Errorf("migrate: %+v", r)
	}
	if again := start(t, "migrate", "--config", config); again.code != 0 || !strings.Contains(again.out, ": schema is up to date at version ") {
		t.Errorf("migrate again: %+v", again)
	}
	o.testServer = serve(t, "--config", config)
	o.args = []string{"--server", "http://" + o.addressOf("admin"), "--token-file", o.file("token", token.Token)}
	o.waitForLog(redisConnected)
	return o
}

func (o *controlPlane) file(name, text string) string {
	name = filepath.Join(o.dir, name)
	writeFile(o.t, name, text)
	return name
}

// varying matches times, which differ between runs.
var varying = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// do runs a command, and compares its exit code and, unless want is empty, its output.
func (o *controlPlane) do(code int, want string, args ...string) {
	o.t.Helper()
	got := start(o.t, append(args, o.args...)...)
	text := strings.ReplaceAll(got.out+got.errors, o.dir+"/", "")
	text = strings.ReplaceAll(strings.ReplaceAll(text, o.args[1], "SERVER"), "http://SERVER", "SERVER")
	text = strings.ReplaceAll(rulesVersion.ReplaceAllString(text, "version XXXXXXXXXXXX"), "XXX+shadow", "XXX")
	text = varying.ReplaceAllString(text, "TIME")
	text = regexp.MustCompile(` +`).ReplaceAllString(text, " ")
	if got.code != code || text != want && want != "" {
		o.t.Errorf("headgate %s\nexit %d, want %d, and\n%s\nwant\n%s", strings.Join(args, " "), got.code, code, text, want)
	}
}

func operateJSON[T any](o *controlPlane, code int, args ...string) T {
	o.t.Helper()
	return startJSON[T](o.t, code, append(args, o.args...)...)
}

// reply runs a command on a terminal, with line as the reply to its prompt.
func (o *controlPlane) reply(line string, args ...string) outcome {
	o.t.Helper()
	var out, log strings.Builder
	p := &program{in: strings.NewReader(line), out: &out, log: &log}
	code, text := exitStatus(p.run(o.t.Context(), append(args, o.args...)))
	return outcome{code, out.String(), log.String() + text}
}

const operatedRules = `rules:
  - id: search
    by: [tenant]
    limit: 100/minute

  - id: login
    by: [tenant, user]
    limits: {day: 50/day, peak: 5/second}
`

func TestOperateRules(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	rules := o.file("rules.yaml", operatedRules)
	o.do(0, "no rules yet: create the first version with headgate rules apply\n", "rules", "history")
	const plan = `from version 0 (0 rules, version XXXXXXXXXXXX)
to rules.yaml (2 rules, version XXXXXXXXXXXX)

added rule search
 tighter by [tenant]; limit 100/minute

added rule login
 tighter by [tenant, user]; limit day 50/day; limit peak 5/second

0 changed, 2 added, 0 removed; 0 looser, 2 tighter, 0 other
`
	o.do(1, plan+"nothing was applied\n", "rules", "apply", rules, "--dry-run")
	o.do(2, plan+"headgate: "+errNoTerminal.Error()+"\n", "rules", "apply", rules)
	if got := o.reply("n\n", "rules", "apply", rules); got.code != 1 || got.errors != "apply as version 1? [y/N] " {
		t.Errorf("replied no: %+v", got)
	}
	if got := o.reply("y\n", "rules", "apply", rules, "--reason", "the first"); got.code != 0 ||
		!strings.HasSuffix(got.out, "\napplied as version 1; check the rollout with headgate nodes\n") {
		t.Errorf("replied yes: %+v", got)
	}
	o.do(0, "no changes from version 1 (2 rules, version XXXXXXXXXXXX) to rules.yaml (2 rules, version XXXXXXXXXXXX)\n",
		"rules", "apply", rules)

	more := o.file("more.yaml", "mode: shadow\nrules: [{id: search, by: [tenant], limit: 200/minute}]\n"+
		"overrides: [{rule: search, subject: {tenant: acme}, limit: 1/minute}]\nexemptions: [{rule: search, user: ann}]\n")
	r := operateJSON[planReport](o, 0, "rules", "apply", more, "--prune", "--yes", "--reason", "more")
	if !r.Applied || r.From != 1 || r.To != 2 || len(r.Changes.Entries) != 3 || len(r.Notes) != 2 ||
		!strings.HasPrefix(r.Notes[0], "1 override in the files ignored: ") {
		t.Errorf("%+v", r)
	}
	o.do(0, "mode: shadow\n\nrules:\n - id: search\n by: [tenant]\n limit: 200/minute\n", "rules", "export")
	o.do(0, operatedRulesShort(), "rules", "export", "--version", "1")
	o.do(0, "out.yaml: 1 rule of version 2\n", "rules", "export", "--out", filepath.Join(o.dir, "out.yaml"))
	o.do(0, "no changes from version 2 (1 rule, version XXXXXXXXXXXX) to out.yaml (1 rule, version XXXXXXXXXXXX)\n",
		"rules", "apply", "--prune", filepath.Join(o.dir, "out.yaml"))

	o.do(1, `from version 2 (1 rule, version XXXXXXXXXXXX)
to mode enforce (1 rule, version XXXXXXXXXXXX)

changed mode of all rules
 tighter mode: shadow → enforce (denies; used units stay used)

1 changed, 0 added, 0 removed; 0 looser, 1 tighter, 0 other
nothing was applied
`, "rules", "apply", "--mode", "enforce", "--dry-run")
	back := operateJSON[planReport](o, 0, "rules", "rollback", "1", "--yes", "--reason", "too much")
	if !back.Applied || back.To != 3 || len(back.Changes.Entries) != 3 {
		t.Errorf("%+v", back)
	}
	o.do(0, "no changes from version 3 (2 rules, version XXXXXXXXXXXX) to version 1 (2 rules, version XXXXXXXXXXXX)\n",
		"rules", "rollback", "1")
	o.do(0, `VERSION TIME AUTHOR RULES CHANGED MODE COMMENT
3 TIME ann 2 enforce too much
2 TIME ann 2 shadow more
1 TIME ann 2 enforce the first
`, "rules", "history")
	o.do(0, "TIME VERSION AUTHOR CHANGE\nTIME 3 ann rule update\nTIME 2 ann rule update\nTIME 1 ann rule insert\n",
		"rules", "history", "--rule", "search")
	o.do(2, "headgate: SERVER: version 9: not found: headgate rules history lists what exists\n", "rules", "rollback", "9")
	eventually(t, "the node runs the rules", func() bool { return start(t, append([]string{"nodes"}, o.args...)...).code == 0 })
	n := operateJSON[nodesReport](o, 0, "nodes")
	if n.RulesVersion != 3 || len(n.Nodes) != 1 || n.Nodes[0].Version != 3 {
		t.Errorf("%+v", n)
	}
}

func operatedRulesShort() string {
	return regexp.MustCompile(` +`).ReplaceAllString(operatedRules, " ")
}

// TestApplyConflict publishes other rules between the plan and its confirmation.
func TestApplyConflict(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	mine, theirs := o.file("mine.yaml", operatedRules), o.file("theirs.yaml", fivePerHour)
	var out, log strings.Builder
	p := &program{out: &out, log: &log}
	p.in = readerFunc(func(data []byte) (int, error) {
		operateJSON[planReport](o, 0, "rules", "apply", theirs, "--yes")
		return copy(data, "y\n"), nil
	})
	code, text := exitStatus(p.run(t.Context(), append([]string{"rules", "apply", mine}, o.args...)))
	if code != 2 || !strings.Contains(text, "\nthe rules were published by another user in the meantime, nothing was applied: run the command again") {
		t.Errorf("%d %s", code, text)
	}
	if r := operateJSON[exportReport](o, 0, "rules", "export"); r.Number != 1 || len(r.Rules) != 1 {
		t.Errorf("%+v", r)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(data []byte) (int, error) { return f(data) }

func TestOperateExceptions(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	operateJSON[planReport](o, 0, "rules", "apply", o.file("rules.yaml", operatedRules), "--yes")

	o.do(0, "override 1: search for tenant=acme; expires: TIME\n before 100 requests per minute, burst 100\n"+
		" after 5,000 requests per minute, burst 500\n", "override", "set", "search", "tenant=acme",
		"5000/minute", "--burst", "500", "--expires", "72h", "--reason", "launch")
	o.do(0, "override 2: login (day) for tenant=a\\,b,user=ann; expires: never\n before 50 requests per day, burst 50\n"+
		" after 7 requests per day, burst 7\nnote: other limits of the rule do not change: peak 5 requests per second, burst 5\n",
		"override", "set", "login", `user=ann,tenant=a\,b`, "7", "--limit-name", "day")
	o.do(0, "ID RULE SUBJECT LIMIT EXPIRES CREATED BY REASON\n1 search tenant=acme 5000/minute burst 500 TIME ann launch\n"+
		"2 login (day) tenant=a\\,b,user=ann 7 never ann \n", "override", "list")
	for filter, want := range map[string]int{
		"--rule=search": 1, `--subject=tenant=a\,b,user=ann`: 1, "--subject=tenant=b": 0, "--all": 2,
	} {
		if r := operateJSON[overrideList](o, 0, "override", "list", filter); len(r.Overrides) != want {
			t.Errorf("%s: %+v", filter, r)
		}
	}
	o.do(2, "headgate: SERVER: rejected: subject: missing tenant: rule \"search\" counts by tenant\n",
		"override", "set", "search", "user=ann", "5/minute")
	o.do(2, "headgate: SERVER: rejected: rule \"login\" has no limit \"\" to override: use --limit-name; headgate rules "+
		"export shows the names\n", "override", "set", "login", "tenant=acme,user=ann", "5/minute")
	o.do(2, "override 1 removed\nheadgate: SERVER: override 9: not found: headgate override list lists what exists; "+
		"the IDs before it were removed\n", "override", "rm", "1", "9", "2")

	o.do(0, "exemption 1: user=ann exempt from search; expires: TIME\n", "exempt", "add", "search", "--user", "ann",
		"--expires", "2099-12-01", "--reason", "load test")
	x := operateJSON[exemptReport](o, 0, "exempt", "add", "search", "--api-key", clearKey).Exemption
	if x.SubjectType != "api_key" || !strings.HasPrefix(x.SubjectValue, "sha256:") {
		t.Errorf("%+v", x)
	}
	o.do(0, "exemption "+number(x.ID)+" removed\n", "exempt", "rm", number(x.ID))
	o.do(0, "ID RULE SUBJECT EXPIRES CREATED BY REASON\n1 search user=ann TIME ann load test\n", "exempt", "list", "--rule", "search")
	o.do(0, "exemption 3: ip_cidr=192.0.2.0/24 exempt from all rules; expires: never\n", "exempt", "add", "--all", "--ip-cidr",
		"192.0.2.0/24")
	o.do(2, "headgate: SERVER: rule \"serch\": not found: headgate rules export lists what exists\n",
		"exempt", "list", "--rule", "serch")

	bob := operateJSON[tokenReport](o, 0, "token", "create", "bob", "--expires", "1h")
	args := []string{"override", "list", "--server", o.args[1], "--token-file", o.file("bob", bob.Token)}
	if got := start(t, args...); got.code != 0 || !strings.HasPrefix(got.out, "ID ") {
		t.Errorf("a token in PostgreSQL: %+v", got)
	}
	args = append([]string{"exempt", "rm", "1"}, args[2:]...)
	if got := start(t, args...); got.code != 2 || !strings.Contains(got.errors, "requires the role editor, and bob has the role viewer") {
		t.Errorf("a viewer: %+v", got)
	}
	o.do(0, "ID NAME ROLE TENANT CREATED BY EXPIRES\n1 bob viewer all ann TIME\n", "token", "list")
	o.do(0, "token 1 removed\n", "token", "rm", "1")
	o.do(0, "ID NAME ROLE TENANT CREATED BY EXPIRES\n1 bob viewer all ann revoked TIME\n", "token", "list")
	if got := start(t, args...); got.code != 2 || !strings.Contains(got.errors, "unknown token") {
		t.Errorf("a revoked token: %+v", got)
	}
}

// TestOperateOverrideBurst checks that an override without a burst scales the burst of the rule with the rate.
func TestOperateOverrideBurst(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	operateJSON[planReport](o, 0, "rules", "apply", "--yes", o.file("rules.yaml", `rules:
  - {id: search, by: [tenant], limit: {rate: 1000/minute, burst: 200}, tiers: {gold: {limit: 2000/minute}}}
  - {id: rows, by: [tenant], limit: {quota: 1000, calendar: month}, cost: {from: header.x-rows}, mode: shadow}
`))
	const tiers = "note: the rule has tiers: the override also replaces the limit of the subject's tier\n"
	o.do(0, "override 1: search for tenant=acme; expires: never\n before 1,000 requests per minute, burst 200\n"+
		" after 5,000 requests per minute, burst 1,000\n"+tiers, "override", "set", "search", "tenant=acme", "5000/minute")
	r := operateJSON[overrideReport](o, 0, "override", "set", "search", "tenant=acme", "6000/minute", "--burst", "50")
	if r.Before == nil || r.Before.Burst != 1000 || r.Before.Origin != "override" || r.After.Count != 6000 || r.After.Burst != 50 ||
		*r.After.WindowSeconds != 60 || r.After.Text != "6,000 requests per minute, burst 50" {
		t.Errorf("%+v %+v", r.Before, r.After)
	}
	o.do(0, "override 3: rows for tenant=acme; expires: never\n before 1,000 units per calendar month, fixed_window\n"+
		" after 5,000 units per calendar month, fixed_window\n", "override", "set", "rows", "tenant=acme", "5000")
	// Overrides imported from a file have the same burst, as the usage on the server shows.
	file := o.file("o.csv", "rule,subject,limit\nsearch,tenant=globex,5000/minute\nsearch,tenant=initech,5000\n")
	o.do(0, "", "override", "import", file)
	eventually(t, "the node runs the rules", func() bool { return start(t, append([]string{"nodes"}, o.args...)...).code == 0 })
	for _, tenant := range []string{"globex", "initech"} {
		eventually(t, tenant+" has its burst", func() bool {
			u := operateJSON[usageReport](o, 0, "usage", "tenant="+tenant, "--rule", "search")
			return u.Usage[0].Limits[0].Limit == 1000
		})
	}
}

func TestOperateCounters(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	operateJSON[planReport](o, 0, "rules", "apply", "--yes", o.file("rules.yaml", `rules:
  - {id: search, by: [tenant], limit: 100/hour, algorithm: fixed_window, strict: true} # no leases, which return units later
  - {id: month, by: [tenant], limit: {quota: 1000, calendar: month}, mode: shadow}
  - {id: all, by: [], limit: 10000/hour, algorithm: fixed_window}
  - {id: login, by: [tenant, user], limits: {day: 50/day, peak: 5/second}}
`))
	eventually(t, "the node runs the rules", func() bool { return start(t, append([]string{"nodes"}, o.args...)...).code == 0 })
	left := func(args ...string) int64 {
		t.Helper()
		return operateJSON[usageReport](o, 0, args...).Usage[0].Limits[0].Remaining
	}
	// On a busy machine Redis may respond after the deadline. The server then counts the request locally and charges it later.
	eventually(t, "requests are counted", func() bool {
		o.check(`"tenant": "acme"`)
		return left("usage", "tenant=acme", "--rule", "search") <= 90
	})
	before := left("usage", "tenant=acme", "--rule", "search")
	if after := left("grant", "search", "tenant=acme", "3"); after != before+3 {
		t.Errorf("%d, then %d", before, after)
	}
	o.do(0, "RULE REMAINING PER RESET NOTES\nsearch 100 of 100 hour TIME \n", "reset", "search", "tenant=acme", "--reason", "ours")
	if left("usage", "tenant=acme", "--rule", "month") == 1000 {
		t.Error("another rule was reset too")
	}
	o.do(0, "RULE REMAINING PER RESET NOTES\nsearch 100 of 100 hour TIME \nmonth 1,000 of 1,000 month TIME not enforced\n",
		"usage", "tenant=globex")
	o.do(0, "RULE REMAINING PER RESET NOTES\nlogin (day) 50 of 50 day TIME \nlogin (peak) 5 of 5 second TIME \n",
		"usage", "tenant=globex,user=ann")
	o.do(0, "RULE REMAINING PER RESET NOTES\nall 10,000 of 10,000 hour TIME \n", "reset", "all", "all")
	o.do(2, "headgate: no rule counts by exactly user: find the rules of a request with headgate explain\n", "usage", "user=ann")
	o.do(2, "headgate: SERVER: subject: missing tenant: rule \"search\" counts by tenant\n", "reset", "search", "user=ann")
	o.do(2, "headgate: SERVER: rule \"serch\": not in force on this server: headgate rules export lists what exists\n",
		"grant", "serch", "tenant=acme", "1")
	o.do(0, "RULE REMAINING PER RESET NOTES\n", "usage") // no rule counts by exactly user
	h := operateJSON[historyReport](o, 0, "rules", "history", "--rule", "search")
	if len(h.Entries) != 3 || h.Entries[0].Object != "counter" || !strings.Contains(string(h.Entries[0].New), "ours") {
		t.Errorf("%+v", h)
	}
	acme := operateJSON[tokenReport](o, 0, "token", "create", "eve", "--tenant", "acme")
	own := startJSON[usageReport](t, 0, "usage", "--server", o.args[1], "--token-file", o.file("eve", acme.Token))
	if len(own.Usage) != 2 || own.Usage[0].Subject["tenant"] != "acme" {
		t.Errorf("%+v", own)
	}
}

// TestRetryAfterTooManyRequests checks that the client retries after a 429 and reads all pages.
func TestRetryAfterTooManyRequests(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = fmt.Fprintf(w, `{"overrides": [{"overrideId": %d}], "next": %q}`, calls.Load(),
			map[string]string{"": "x", "x": "y", "y": ""}[r.URL.Query().Get("cursor")])
	}))
	l := startJSON[overrideList](t, 0, "override", "list", "--server", server.URL)
	if calls.Load() != 4 || len(l.Overrides) != 3 || l.Overrides[2].ID != 4 || l.More {
		t.Errorf("%d calls: %+v", calls.Load(), l)
	}
}

func TestOperateDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	operateJSON[planReport](o, 0, "rules", "apply", o.file("rules.yaml", fivePerHour), "--yes")
	ready := func() int {
		status, _ := send(t, http.MethodGet, "http://"+o.addressOf("ops")+"/readyz", "")
		return status
	}
	for end := time.Now().Add(20 * time.Second); ready() != http.StatusOK && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // until the server has loaded the rules
	}
	o.postgres.Kill()
	got := start(t, append([]string{"override", "list"}, o.args...)...)
	if got.code != 2 || !strings.Contains(got.errors, "try again") || strings.Contains(got.errors, "\n\n") {
		t.Errorf("%+v", got)
	}
	got = start(t, "migrate", "--config", filepath.Join(o.dir, "config.yaml"))
	if got.code != 2 || !strings.Contains(got.errors, "connection refused") || !strings.Contains(got.errors, "\ncheck that PostgreSQL is up") {
		t.Errorf("%+v", got)
	}
	if status := ready(); status != http.StatusOK {
		t.Error(status)
	}
}

// TestNodesText checks what is shown of a node that has stopped reporting: it is not ok, but it is not behind either.
func TestNodesText(t *testing.T) {
	t.Parallel()
	r := nodesReport{RulesVersion: 3, Nodes: []adminapi.Node{
		{Node: pgrules.Node{Name: "a", Version: 3, AgeSeconds: 2}},
		{Node: pgrules.Node{Name: "b", Version: 3, AgeSeconds: 196}},
		{Node: pgrules.Node{Name: "c", Version: 2, AgeSeconds: 196}, Behind: true},
	}}
	const want = `rules version 3; 3 nodes, 1 behind
NODE  VERSION  LAST SEEN  STATUS
a     3        2s ago     ok
b     3        3m16s ago  not seen: stopped, or cannot write to PostgreSQL
c     2        3m16s ago  behind
`
	if got := r.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
