package adminapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func TestExemptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"), document("b", "10/minute"))
	made := w.call(t, editor, "POST /rules/a/exemptions", `{"subjectType": "user", "subjectValue": "ann", "reason": "load test",
		"expiresAt": "2099-01-01T00:00:00Z"}`).want(201)
	id := made.text("exemptionId")
	if made.text("rule") != "a" || made.text("createdBy") != "ann" || made.text("reason") != "load test" ||
		made.text("expiresAt") != "2099-01-01T00:00:00Z" || made.Header().Get("Location") != "/v1/rate-limit/exemptions/"+id {
		t.Errorf("%v %s", made.Header(), made.Body)
	}
	key := w.call(t, editor, "POST /rules/a/exemptions", `{"subjectType": "api_key", "apiKey": "secret"}`).want(201)
	if key.text("subjectValue") != headgate.HashKey("secret") || strings.Contains(key.Body.String(), `"secret"`) {
		t.Errorf("%s", key.Body)
	}
	w.call(t, editor, "POST /rules/b/exemptions", `{"subjectType": "ip_cidr", "subjectValue": "192.0.2.1"}`).want(201)
	if got := w.call(t, viewer, "GET /rules/a/exemptions", "").texts("exemptions", "subjectType"); got != "user api_key" {
		t.Error(got)
	}
	w.call(t, editor, "POST /exemptions", `{"subjectType": "service_account", "subjectValue": "cron"}`).want(201).
		has("rule=")
	got := w.call(t, viewer, "GET /exemptions?limit=2", "")
	got.has("exemptions.*.rule=a a")
	if got.at("next") == nil {
		t.Errorf("%s", got.Body)
	}
	for body, want := range map[string]string{
		`{"subjectType": "api_key", "subjectValue": "sha256:cut"}`:                            "incomplete hash",
		`{"subjectType": "user", "apiKey": "secret"}`:                                         "apiKey: requires",
		`{"subjectType": "planet", "subjectValue": "x"}`:                                      "or service_account",
		`{"subjectType": "ip_cidr", "subjectValue": "x"}`:                                     "invalid network",
		`{"subjectType": "user", "subjectValue": "ann", "expiresAt": "2020-01-01T00:00:00Z"}`: "in the past",
	} {
		w.call(t, editor, "POST /rules/a/exemptions", body).wantProblem(422, want)
	}
	w.call(t, editor, "POST /rules/a/exemptions", `{"subject": "ann"}`).wantProblem(400, `unknown field "subject": send {`)
	w.call(t, editor, "POST /rules/c/exemptions", `{}`).wantProblem(404)
	w.call(t, editor, "DELETE /exemptions/"+id, "").want(204)
	w.call(t, editor, "DELETE /exemptions/"+id, "").wantProblem(404, "exemption "+id+": not found")
	w.call(t, editor, "DELETE /exemptions/x", "").wantProblem(404, "must be a number")
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"),
		`{"id": "b", "by": ["tenant", "user"], "limits": {"peak": "1/s", "day": "9/day"}}`)
	made := w.call(t, editor, "POST /overrides", `{"rule": "b", "subject": {"tenant": "acme", "user": "ann"}, "limit": "5/second",
		"limitName": "peak", "reason": "launch", "expiresAt": "2099-01-01T00:00:00Z"}`).want(201)
	id := made.text("overrideId")
	if made.text("subject.user") != "ann" || made.text("limit") != "5/second" || made.text("limitName") != "peak" ||
		made.Header().Get("Location") != "/v1/rate-limit/overrides/"+id {
		t.Errorf("%v %s", made.Header(), made.Body)
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"rule": "a", "subject": {"user": "u%d"}, "limit": "%d"}`, i, i+1)
	}
	for _, want := range []string{"1000", "0"} {
		got := w.call(t, editor, "POST /overrides", `{"overrides": [`+strings.Join(many, ",")+`]}`).want(200)
		if got.text("changed") != want {
			t.Errorf("%s changed, want %s", got.text("changed"), want)
		}
	}
	for query, want := range map[string]string{
		"?rule=b": "ann", "?subject=user=u7": "u7", "?rule=a&limit=2": "u0 u1", "?subject=user=ann&subject=tenant=acme": "ann",
		"?subject=user=ann": "",
	} {
		if got := w.call(t, viewer, "GET /overrides"+query, "").want(200).texts("overrides", "subject.user"); got != want {
			t.Errorf("%s: %s", query, got)
		}
	}
	w.call(t, viewer, "GET /overrides?subject=ann", "").wantProblem(400, "NAME=VALUE")
	for body, want := range map[string]string{
		`{"rule": "a", "subject": {"user": "x"}, "limit": "lots"}`:                                     `"lots"`,
		`{"rule": "a", "subject": {"ip": "x"}, "limit": "5/s"}`:                                        "subject: missing user",
		`{"overrides": [{"rule": "a", "subject": {"user": "x"}, "limit": "5/s"}, {"rule": "a"}]}`:      "override 1: ",
		`{"rule": "a", "subject": {"user": "x"}, "limit": "5/s", "expiresAt": "2020-01-01T00:00:00Z"}`: "in the past",
	} {
		w.call(t, editor, "POST /overrides", body).wantProblem(422, want)
	}
	w.call(t, editor, "POST /overrides", `{"rule": "c", "subject": {"user": "x"}, "limit": "5/s"}`).wantProblem(404, `rule "c"`)
	w.call(t, editor, "POST /overrides", `[]`).wantProblem(400, "send {")
	w.call(t, editor, "DELETE /overrides/"+id, "").want(204)
	w.call(t, editor, "DELETE /overrides/"+id, "").wantProblem(404)
}

// A tenant sees the exceptions for it, and can change those of its own rules, but not of its quota, which is a rule of operators.
func TestTenantExceptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, `{"id": "quota", "by": ["tenant"], "limit": "10/minute"}`)
	w.create(t, acme, document("sub", "5/minute"))
	const raise = `{"rule": "quota", "subject": {"tenant": "%s"}, "limit": "5000/minute"}`
	const own = `{"rule": "sub", "subject": {"tenant": "acme", "user": "ann"}, "limit": "6/minute"}`
	const free = `{"subjectType": "user", "subjectValue": "ann"}`
	ours := w.call(t, editor, "POST /overrides", fmt.Sprintf(raise, "acme")).want(201).text("overrideId")
	w.call(t, editor, "POST /overrides", fmt.Sprintf(raise, "globex")).want(201)
	exempt := w.call(t, editor, "POST /rules/quota/exemptions", free).want(201).text("exemptionId")

	w.call(t, acme, "POST /overrides", fmt.Sprintf(raise, "acme")).wantProblem(404, `override 0: rule "quota"`)
	w.call(t, acme, "POST /rules/quota/exemptions", free).wantProblem(404)
	w.call(t, acme, "DELETE /overrides/"+ours, "").wantProblem(404)
	w.call(t, acme, "DELETE /exemptions/"+exempt, "").wantProblem(404)
	override := w.call(t, acme, "POST /overrides", own).want(201).text("overrideId")
	exemption := w.call(t, acme, "POST /rules/sub/exemptions", free).want(201).text("exemptionId")
	for as, want := range map[string]string{acme: "quota sub", globex: "quota", viewer: "quota quota sub"} {
		if got := w.call(t, as, "GET /overrides", "").texts("overrides", "rule"); got != want {
			t.Errorf("%s sees overrides of %s", as, got)
		}
	}
	for as, want := range map[string]string{acme: "sub", globex: "", viewer: "quota sub"} {
		if got := w.call(t, as, "GET /exemptions", "").texts("exemptions", "rule"); got != want {
			t.Errorf("%s sees exemptions of %s", as, got)
		}
	}
	w.call(t, globex, "DELETE /overrides/"+override, "").wantProblem(404)
	w.call(t, globex, "DELETE /exemptions/"+exemption, "").wantProblem(404)
	w.call(t, acme, "DELETE /overrides/"+override, "").want(204)
	w.call(t, acme, "DELETE /exemptions/"+exemption, "").want(204)
}
