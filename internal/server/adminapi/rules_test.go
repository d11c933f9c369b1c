package adminapi

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// The flat form is accepted unchanged, and returned with the equivalent document.
func TestFlatRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.call(t, editor, "POST /rules", `{"name": "default_per_key", "scope": "global", "algorithm": "sliding_window_counter",
		"maxRequests": 100, "windowSeconds": 60, "priority": 10}`).want(201)
	made.has("name=default_per_key", "scope=global", "algorithm=sliding_window_counter", "maxRequests=100", "windowSeconds=60",
		"priority=10", "enabled=true", "version=1", "rule.id=default_per_key", "rule.limit=100/minute", "owner=", "tenantId=")
	id := made.text("ruleId")
	if at := made.Header().Get("Location"); at != "/v1/rate-limit/rules/"+id || !uuid.MatchString(id) {
		t.Errorf("Location: %s", at)
	}
	for _, name := range []string{id, "default_per_key"} {
		read := w.call(t, viewer, "GET /rules/"+name, "").want(200)
		if read.text("ruleId") != id || read.Header().Get("Etag") != `"`+read.text("revision")+`"` {
			t.Errorf("%v %s", read.Header(), read.Body)
		}
	}
	w.call(t, viewer, "GET /rules/other", "").wantProblem(404, `rule "other": not found`)
}

func TestRuleChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"), document("b", "10/minute"))
	first := w.call(t, viewer, "GET /rules/a", "")
	tag := first.Header().Get("Etag")

	w.call(t, editor, "PUT /rules/a", document("c", "20/minute"), "If-Match", tag).wantProblem(422, "cannot be renamed")
	second := w.call(t, editor, "PUT /rules/a", document("a", "20/minute"), "If-Match", `"0", `+tag).want(200)
	second.has("rule.limit=20/minute", "version=3")
	if second.Header().Get("Etag") == tag {
		t.Errorf("%s", second.Body)
	}
	w.call(t, editor, "PUT /rules/a", document("a", "30/minute"), "If-Match", tag).wantProblem(412, "read it again")
	w.call(t, editor, "DELETE /rules/a", "", "If-Match", tag).wantProblem(412, "read it again")
	w.call(t, editor, "PUT /rules/a", document("a", "30/minute"), "If-Match", "*").want(200)

	w.call(t, editor, "POST /rules", document("a", "1/minute")).wantProblem(409, `rule "a": exists: replace it with PUT /v1/rate-limit/rules/`)
	for range 2 { // the second has no effect
		w.call(t, editor, "DELETE /rules/a", "").want(204)
	}
	w.call(t, viewer, "GET /rules/a", "").want(200).has("enabled=false", "rule.limit=30/minute")
	w.call(t, editor, "POST /rules", document("a", "1/minute")).wantProblem(409, "exists and is disabled")
	w.call(t, editor, "DELETE /rules/b", "").wantProblem(422, "no rule would remain")
	w.call(t, editor, "PUT /rules/a", document("a", "1/minute"), "If-Match", "*").want(200)
}

// Without If-Match the last writer wins, and the audit has the replaced rule and the actor.
func TestPutWithoutIfMatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"))
	tag := w.call(t, viewer, "GET /rules/a", "").Header().Get("Etag")
	w.call(t, editor, "PUT /rules/a", document("a", "20/minute")).want(200).has("rule.limit=20/minute", "version=2")
	w.call(t, editor, "PUT /rules/a", `{"name": "a", "scope": "global", "maxRequests": 30, "windowSeconds": 60}`).want(200).
		has("rule.limit=30/minute", "version=3", "maxRequests=30")
	w.call(t, editor, "PUT /rules/a", document("a", "40/minute"), "If-Match", tag).wantProblem(412, "read it again")
	w.call(t, editor, "PUT /rules/a", document("a", "40/minute"), "If-Match", "").want(200)
	w.call(t, editor, "PUT /rules/b", document("b", "20/minute")).wantProblem(404, "not found")
	w.call(t, editor, "PUT /rules/a", document("c", "20/minute")).wantProblem(422, "cannot be renamed")
	w.call(t, viewer, "GET /audit?rule=a", "").want(200).has("entries.*.action=update update update insert",
		"entries.0.old.max_requests=30", "entries.*.new.max_requests=40 30 20 10", "entries.*.actor=ann ann ann ann")

	// All concurrent writers succeed.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { w.call(t, editor, "PUT /rules/a", document("a", fmt.Sprintf("%d/minute", 100+i))).want(200) })
	}
	all.Wait()
	if n := strings.Count(w.call(t, viewer, "GET /audit?rule=a", "").texts("entries", "action"), "update"); n != 3+8 {
		t.Errorf("%d changes are in the audit, want 11", n)
	}
}

func TestRuleProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := w.call(t, editor, "POST /rules", "{\"id\": \"a\",\n \"bye\": [\"user\"],\n \"limit\": \"10/minuet\"}")
	bad.wantProblem(422, "problems")
	bad.has("problems.0.line=2", "problems.0.column=2", "problems.0.rule=a")
	if !strings.Contains(bad.texts("problems", "problem"), "did you mean 10/minute") {
		t.Errorf("%s", bad.Body)
	}
	w.call(t, editor, "POST /rules", `{"name": "f", "scope": "planet", "maxRequests": 1, "windowSeconds": 1}`).wantProblem(422, "planet")
	w.call(t, editor, "POST /rules", "").wantProblem(422)
	w.call(t, editor, "POST /rules", document("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "1/s")).wantProblem(422, "choose another name")
	w.call(t, editor, "POST /rules", `{"id": "b", "by": [], "limit": "1/day"}`).wantProblem(422, "deny all clients")
	w.call(t, editor, "POST /rules", `{"id": "`+strings.Repeat("x", maxBody)+`"}`).wantProblem(413, "65536")
}

func TestRuleList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.create(t, editor, document(fmt.Sprintf("r%d", i), "10/minute"))
	}
	w.create(t, editor, `{"name": "t", "scope": "tenant", "tenantId": "acme", "maxRequests": 1, "windowSeconds": 1}`)
	w.call(t, editor, "DELETE /rules/r1", "").want(204)
	for query, want := range map[string]string{
		"": "r0 r1 r2 r3 r4 t", "?enabled=true": "r0 r2 r3 r4 t", "?enabled=false": "r1", "?scope=tenant": "t", "?tenant=acme": "t",
		"?tenant=globex": "", "?scope=endpoint&tenant=acme": "",
	} {
		if got := w.call(t, viewer, "GET /rules"+query, "").want(200).texts("rules", "name"); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	var pages []string
	for next := "?limit=2"; ; {
		page := w.call(t, viewer, "GET /rules"+next, "").want(200)
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
		"?limit=501": "must be 1 to 500", "?limit=0": "must be 1 to 500", "?cursor=x": "invalid cursor",
		"?enabled=maybe": "send true or false",
		"?tennant=acme":  "unknown parameter",
	} {
		w.call(t, viewer, "GET /rules"+query, "").wantProblem(400, want)
	}
}

// Rules of a tenant match only its own requests, have counters of their own, and apply in addition to all others.
func TestTenantRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("ours", "10/minute"))
	made := w.call(t, acme, "POST /rules", document("acme-search", "5/minute")).want(201)
	made.has("owner=acme", "tenantId=acme", "rule.match.tenant=acme", "rule.by=[tenant user]")
	w.create(t, acme, `{"id": "acme-2", "match": {"tenant": "acme"}, "by": ["tenant"], "limit": "5/minute"}`,
		`{"name": "acme-3", "scope": "global", "maxRequests": 5, "windowSeconds": 60}`)
	for body, want := range map[string]string{
		`{"id": "x", "match": {"tenant": "globex"}, "by": ["user"], "limit": "5/minute"}`:              "match.tenant: must be acme",
		`{"id": "x", "match": {"tenant": ["acme", "globex"]}, "by": ["user"], "limit": "5/minute"}`:    "match.tenant: must be acme",
		`{"id": "x", "match": {"tenant": {"not": ["acme"]}}, "by": ["user"], "limit": "5/minute"}`:     "match.tenant: must be acme",
		`{"name": "x", "scope": "tenant", "tenantId": "globex", "maxRequests": 1, "windowSeconds": 1}`: "match.tenant: must be acme",
		`{"id": "x", "by": ["user"], "limit": "5/minute", "priority": 1}`:                              "priority: not allowed for tenants",
		`{"id": "x", "by": [], "limit": "5/minute"}`:                                                   "write by: [tenant]",
		`{"id": "x", "by": ["user"], "limit": "5/minute", "critical": true}`:                           "critical: not allowed for tenants",
	} {
		w.call(t, acme, "POST /rules", body).wantProblem(422, want)
	}
	w.call(t, acme, "POST /rules", `{"id": "acme-4", "counter": "acme-2", "cost": 2}`).want(201).
		has("owner=acme", "rule.match.tenant=acme", "rule.counter=acme-2", "rule.by=")
	w.call(t, acme, "POST /rules", `{"id": "x", "counter": "ours"}`).wantProblem(422, "belongs to another owner")
	w.call(t, acme, "DELETE /rules/acme-2", "").wantProblem(422, `"acme-4" charges the counters of rule "acme-2"`)
	w.call(t, acme, "DELETE /rules/acme-4", "").want(204)
	w.call(t, acme, "PUT /rules/acme-2", `{"id": "acme-2", "by": ["tenant"], "limit": "1/s", "priority": 9}`, "If-Match", "*").
		wantProblem(422, "priority: not allowed for tenants")
	w.call(t, acme, "POST /rules", document("ours", "5/minute")).wantProblem(409, `rule "ours": name is taken`)
	for _, what := range []string{"GET", "PUT", "DELETE"} {
		w.call(t, acme, what+" /rules/ours", document("ours", "9/s"), "If-Match", "*").wantProblem(404, "not found")
		w.call(t, globex, what+" /rules/acme-2", document("acme-2", "9/s"), "If-Match", "*").wantProblem(404)
	}
	if got := w.call(t, acme, "GET /rules", "").texts("rules", "name"); got != "acme-search acme-2 acme-3 acme-4" {
		t.Errorf("acme sees %s", got)
	}
	if got := w.call(t, globex, "GET /rules", "").texts("rules", "name"); got != "" {
		t.Errorf("globex sees %s", got)
	}
	// After a change by an operator, the rule still belongs to the tenant and matches only its requests.
	w.call(t, editor, "PUT /rules/acme-3", document("acme-3", "9/minute"), "If-Match", "*").want(200).
		has("owner=acme", "rule.by=[tenant user]", "rule.match.tenant=acme")
	w.call(t, acme, "PUT /rules/acme-3", document("acme-3", "7/minute"), "If-Match", "*").want(200)
	w.call(t, acme, "DELETE /rules/acme-3", "").want(204)
}

// Quotas limit the rules and exceptions of a tenant.
func TestTenantQuotas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quotas := pgrules.DefaultQuotas()
	quotas.Rules, quotas.Exceptions = 3, 2
	w.db.SetQuotas(quotas)
	for i := range quotas.Rules {
		w.create(t, acme, document(fmt.Sprintf("r%d", i), "1/minute"))
	}
	w.call(t, acme, "POST /rules", document("more", "1/minute")).wantProblem(422, "it has 3 rules", "at most 3", "tenants.max_rules")
	w.call(t, acme, "POST /validate", document("more", "1/minute")).want(200).has("valid=false")
	w.create(t, globex, document("more", "1/minute"))
	limits := make([]string, 256)
	for i := range limits {
		limits[i] = fmt.Sprintf(`"l%d": "1000/minute"`, i)
	}
	heavy := fmt.Sprintf(`{"id": "r0", "by": ["tenant"], "limits": {%s}, "meter": true}`, strings.Join(limits, ","))
	w.call(t, acme, "PUT /rules/r0", heavy, "If-Match", "*").wantProblem(422, "weight 256", "at most 64", "split the rule")
	slow := `{"id": "r0", "by": ["tenant"], "limit": "9/s", "when": "path.matches(\"(?:a?){40}b$\")"}`
	w.call(t, acme, "PUT /rules/r0", slow, "If-Match", "*").wantProblem(422, "estimated cost is 680960 steps", "must be at most 150000", "use startsWith")
	w.call(t, editor, "POST /rules", strings.Replace(slow, "r0", "ours", 1)).wantProblem(422, "must be at most 150000")
	for i, status := range []int{201, 201, 422} {
		body := fmt.Sprintf(`{"subjectType": "user", "subjectValue": "u%d"}`, i)
		w.call(t, acme, "POST /rules/r0/exemptions", body).want(status)
	}
	w.call(t, acme, "POST /overrides", `{"rule": "r0", "subject": {"tenant": "acme", "user": "ann"}, "limit": "2/minute"}`).
		wantProblem(422, "it has 2 overrides and exemptions", "would have 3, and may have at most 2", "tenants.max_exceptions")
	w.call(t, editor, "POST /overrides", `{"rule": "r0", "subject": {"tenant": "acme", "user": "ann"}, "limit": "2/minute"}`).want(201)
}

// Of concurrent changes of the same revision one succeeds, and the others get a 412.
func TestConcurrentOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"))
	tag := w.call(t, viewer, "GET /rules/a", "").Header().Get("Etag")
	const operators = 8
	statuses := make(chan int, operators)
	var all sync.WaitGroup
	for i := range operators {
		all.Go(func() {
			statuses <- w.call(t, editor, "PUT /rules/a", document("a", fmt.Sprintf("%d/minute", 20+i)), "If-Match", tag).Code
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
