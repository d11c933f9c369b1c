package adminapi

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// The flat form is accepted as it stands, and comes back with the document that it stands for.
func TestFlatRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.ask(t, editor, "POST /rules", `{"name": "default_per_key", "scope": "global", "algorithm": "sliding_window_counter",
		"maxRequests": 100, "windowSeconds": 60, "priority": 10}`).want(201)
	made.has("name=default_per_key", "scope=global", "algorithm=sliding_window_counter", "maxRequests=100", "windowSeconds=60",
		"priority=10", "enabled=true", "version=1", "rule.id=default_per_key", "rule.limit=100/minute", "owner=", "tenantId=")
	id := made.text("ruleId")
	if at := made.Header().Get("Location"); at != "/v1/rate-limit/rules/"+id || !uuid.MatchString(id) {
		t.Errorf("Location: %s", at)
	}
	for _, name := range []string{id, "default_per_key"} {
		read := w.ask(t, viewer, "GET /rules/"+name, "").want(200)
		if read.text("ruleId") != id || read.Header().Get("Etag") != `"`+read.text("revision")+`"` {
			t.Errorf("%v %s", read.Header(), read.Body)
		}
	}
	w.ask(t, viewer, "GET /rules/other", "").says(404, `rule "other": not found`)
}

func TestRuleChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"), document("b", "10/minute"))
	first := w.ask(t, viewer, "GET /rules/a", "")
	tag := first.Header().Get("Etag")

	w.ask(t, editor, "PUT /rules/a", document("c", "20/minute"), "If-Match", tag).says(422, "a rule keeps its name")
	second := w.ask(t, editor, "PUT /rules/a", document("a", "20/minute"), "If-Match", `"0", `+tag).want(200)
	second.has("rule.limit=20/minute", "version=3")
	if second.Header().Get("Etag") == tag {
		t.Errorf("%s", second.Body)
	}
	w.ask(t, editor, "PUT /rules/a", document("a", "30/minute"), "If-Match", tag).says(412, "read it again")
	w.ask(t, editor, "DELETE /rules/a", "", "If-Match", tag).says(412, "read it again")
	w.ask(t, editor, "PUT /rules/a", document("a", "30/minute"), "If-Match", "*").want(200)

	w.ask(t, editor, "POST /rules", document("a", "1/minute")).says(409, `rule "a": PUT /v1/rate-limit/rules/`)
	for range 2 { // the second changes nothing
		w.ask(t, editor, "DELETE /rules/a", "").want(204)
	}
	w.ask(t, viewer, "GET /rules/a", "").want(200).has("enabled=false", "rule.limit=30/minute")
	w.ask(t, editor, "POST /rules", document("a", "1/minute")).says(409, "which is disabled")
	w.ask(t, editor, "DELETE /rules/b", "").says(422, "no rule would remain")
	w.ask(t, editor, "PUT /rules/a", document("a", "1/minute"), "If-Match", "*").want(200)
}

// Without If-Match the last writer wins, and the audit shows what was overwritten and by whom.
func TestPlainPut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"))
	tag := w.ask(t, viewer, "GET /rules/a", "").Header().Get("Etag")
	w.ask(t, editor, "PUT /rules/a", document("a", "20/minute")).want(200).has("rule.limit=20/minute", "version=2")
	w.ask(t, editor, "PUT /rules/a", `{"name": "a", "scope": "global", "maxRequests": 30, "windowSeconds": 60}`).want(200).
		has("rule.limit=30/minute", "version=3", "maxRequests=30")
	w.ask(t, editor, "PUT /rules/a", document("a", "40/minute"), "If-Match", tag).says(412, "read it again")
	w.ask(t, editor, "PUT /rules/a", document("a", "40/minute"), "If-Match", "").want(200)
	w.ask(t, editor, "PUT /rules/b", document("b", "20/minute")).says(404, "not found")
	w.ask(t, editor, "PUT /rules/a", document("c", "20/minute")).says(422, "a rule keeps its name")
	w.ask(t, viewer, "GET /audit?rule=a", "").want(200).has("entries.*.action=update update update insert",
		"entries.0.old.max_requests=30", "entries.*.new.max_requests=40 30 20 10", "entries.*.actor=ann ann ann ann")

	// All of those who write at once are told that their rule is stored, and one of them was last.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { w.ask(t, editor, "PUT /rules/a", document("a", fmt.Sprintf("%d/minute", 100+i))).want(200) })
	}
	all.Wait()
	if n := strings.Count(w.ask(t, viewer, "GET /audit?rule=a", "").texts("entries", "action"), "update"); n != 3+8 {
		t.Errorf("%d changes are in the audit, want 11", n)
	}
}

func TestRuleProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := w.ask(t, editor, "POST /rules", "{\"id\": \"a\",\n \"bye\": [\"user\"],\n \"limit\": \"10/minuet\"}")
	bad.says(422, "problems")
	bad.has("problems.0.line=2", "problems.0.column=2", "problems.0.rule=a")
	if !strings.Contains(bad.texts("problems", "problem"), "did you mean 10/minute") {
		t.Errorf("%s", bad.Body)
	}
	w.ask(t, editor, "POST /rules", `{"name": "f", "scope": "planet", "maxRequests": 1, "windowSeconds": 1}`).says(422, "planet")
	w.ask(t, editor, "POST /rules", "").says(422)
	w.ask(t, editor, "POST /rules", document("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "1/s")).says(422, "choose a name")
	w.ask(t, editor, "POST /rules", `{"id": "b", "by": [], "limit": "1/day"}`).says(422, "deny all clients")
	w.ask(t, editor, "POST /rules", `{"id": "`+strings.Repeat("x", maxBody)+`"}`).says(413, "65536")
}

func TestRuleList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.create(t, editor, document(fmt.Sprintf("r%d", i), "10/minute"))
	}
	w.create(t, editor, `{"name": "t", "scope": "tenant", "tenantId": "acme", "maxRequests": 1, "windowSeconds": 1}`)
	w.ask(t, editor, "DELETE /rules/r1", "").want(204)
	for query, want := range map[string]string{
		"": "r0 r1 r2 r3 r4 t", "?enabled=true": "r0 r2 r3 r4 t", "?enabled=false": "r1", "?scope=tenant": "t", "?tenant=acme": "t",
		"?tenant=globex": "", "?scope=endpoint&tenant=acme": "",
	} {
		if got := w.ask(t, viewer, "GET /rules"+query, "").want(200).texts("rules", "name"); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	var pages []string
	for next := "?limit=2"; ; {
		page := w.ask(t, viewer, "GET /rules"+next, "").want(200)
		pages = append(pages, page.texts("rules", "name"))
		if page.at("next") == nil {
			break
		}
		next = "?limit=2&cursor=" + page.text("next")
	}
	if got := strings.Join(pages, ", "); got != "r0 r1, r2 r3, r4 t" {
		t.Errorf("pages %s", got)
	}
	for query, want := range map[string]string{
		"?limit=501": "send 1 to 500", "?limit=0": "send 1 to 500", "?cursor=x": "the cursor is none",
		"?enabled=maybe": "send true or false",
		"?tennant=acme":  "there is no parameter",
	} {
		w.ask(t, viewer, "GET /rules"+query, "").says(400, want)
	}
}

// A tenant's rules are limits below ours: only for its own requests, with counters of their own, beside all others.
func TestTenantRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("ours", "10/minute"))
	made := w.ask(t, acme, "POST /rules", document("acme-search", "5/minute")).want(201)
	made.has("owner=acme", "tenantId=acme", "rule.match.tenant=acme", "rule.by=[tenant user]")
	w.create(t, acme, `{"id": "acme-2", "match": {"tenant": "acme"}, "by": ["tenant"], "limit": "5/minute"}`,
		`{"name": "acme-3", "scope": "global", "maxRequests": 5, "windowSeconds": 60}`)
	for body, want := range map[string]string{
		`{"id": "x", "match": {"tenant": "globex"}, "by": ["user"], "limit": "5/minute"}`:              "than those of tenant acme",
		`{"id": "x", "match": {"tenant": ["acme", "globex"]}, "by": ["user"], "limit": "5/minute"}`:    "than those of tenant acme",
		`{"id": "x", "match": {"tenant": {"not": ["acme"]}}, "by": ["user"], "limit": "5/minute"}`:     "than those of tenant acme",
		`{"name": "x", "scope": "tenant", "tenantId": "globex", "maxRequests": 1, "windowSeconds": 1}`: "other requests",
		`{"id": "x", "by": ["user"], "limit": "5/minute", "priority": 1}`:                              "a priority would",
		`{"id": "x", "by": [], "limit": "5/minute"}`:                                                   "write by: [tenant]",
		`{"id": "x", "by": ["user"], "limit": "5/minute", "critical": true}`:                           "critical is not for tenants",
	} {
		w.ask(t, acme, "POST /rules", body).says(422, want)
	}
	w.ask(t, acme, "PUT /rules/acme-2", `{"id": "acme-2", "by": ["tenant"], "limit": "1/s", "priority": 9}`, "If-Match", "*").
		says(422, "a priority would")
	w.ask(t, acme, "POST /rules", document("ours", "5/minute")).says(409, `the name "ours" is taken`)
	for _, what := range []string{"GET", "PUT", "DELETE"} {
		w.ask(t, acme, what+" /rules/ours", document("ours", "9/s"), "If-Match", "*").says(404, "not found")
		w.ask(t, globex, what+" /rules/acme-2", document("acme-2", "9/s"), "If-Match", "*").says(404)
	}
	if got := w.ask(t, acme, "GET /rules", "").texts("rules", "name"); got != "acme-search acme-2 acme-3" {
		t.Errorf("acme sees %s", got)
	}
	if got := w.ask(t, globex, "GET /rules", "").texts("rules", "name"); got != "" {
		t.Errorf("globex sees %s", got)
	}
	// An operator's change leaves the rule theirs, and about them.
	w.ask(t, editor, "PUT /rules/acme-3", document("acme-3", "9/minute"), "If-Match", "*").want(200).
		has("owner=acme", "rule.by=[tenant user]", "rule.match.tenant=acme")
	w.ask(t, acme, "PUT /rules/acme-3", document("acme-3", "7/minute"), "If-Match", "*").want(200)
	w.ask(t, acme, "DELETE /rules/acme-3", "").want(204)
}

// A tenant may not fill the table, nor load the servers of all.
func TestTenantQuotas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quotas := pgrules.DefaultQuotas()
	quotas.Rules, quotas.Exceptions = 3, 2
	w.db.SetQuotas(quotas)
	for i := range quotas.Rules {
		w.create(t, acme, document(fmt.Sprintf("r%d", i), "1/minute"))
	}
	w.ask(t, acme, "POST /rules", document("more", "1/minute")).says(422, "it has 3 rules", "at most 3", "tenants.max_rules")
	w.ask(t, acme, "POST /validate", document("more", "1/minute")).want(200).has("valid=false")
	w.create(t, globex, document("more", "1/minute"))
	limits := make([]string, 256)
	for i := range limits {
		limits[i] = fmt.Sprintf(`"l%d": "1000/minute"`, i)
	}
	heavy := fmt.Sprintf(`{"id": "r0", "by": ["tenant"], "limits": {%s}, "meter": true}`, strings.Join(limits, ","))
	w.ask(t, acme, "PUT /rules/r0", heavy, "If-Match", "*").says(422, "weight 256", "at most 64", "split the rule")
	slow := `{"id": "r0", "by": ["tenant"], "limit": "9/s", "when": "path.matches(\"(?:a?){40}b$\")"}`
	w.ask(t, acme, "PUT /rules/r0", slow, "If-Match", "*").says(422, "estimated cost is 680960 steps", "budget is 150000", "use startsWith")
	w.ask(t, editor, "POST /rules", strings.Replace(slow, "r0", "ours", 1)).says(422, "budget is 150000")
	for i, status := range []int{201, 201, 422} {
		body := fmt.Sprintf(`{"subjectType": "user", "subjectValue": "u%d"}`, i)
		w.ask(t, acme, "POST /rules/r0/exemptions", body).want(status)
	}
	w.ask(t, acme, "POST /overrides", `{"rule": "r0", "subject": {"tenant": "acme", "user": "ann"}, "limit": "2/minute"}`).
		says(422, "it has 2 overrides and exemptions", "would have 3, and may have at most 2", "tenants.max_exceptions")
	w.ask(t, editor, "POST /overrides", `{"rule": "r0", "subject": {"tenant": "acme", "user": "ann"}, "limit": "2/minute"}`).want(201)
}

// Of those who have read the same rule one changes it, and the others are told.
func TestTwoOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"))
	tag := w.ask(t, viewer, "GET /rules/a", "").Header().Get("Etag")
	const operators = 8
	statuses := make(chan int, operators)
	var all sync.WaitGroup
	for i := range operators {
		all.Go(func() {
			statuses <- w.ask(t, editor, "PUT /rules/a", document("a", fmt.Sprintf("%d/minute", 20+i)), "If-Match", tag).Code
		})
	}
	all.Wait()
	close(statuses)
	count := map[int]int{}
	for status := range statuses {
		count[status]++
	}
	if count[200] != 1 || count[412] != operators-1 {
		t.Errorf("%v", count)
	}
}
