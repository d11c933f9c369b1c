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
	made := w.ask(t, editor, "POST /rules/a/exemptions", `{"subjectType": "user", "subjectValue": "ann", "reason": "load test",
		"expiresAt": "2099-01-01T00:00:00Z"}`).want(201)
	id := made.text("exemptionId")
	if made.text("rule") != "a" || made.text("createdBy") != "ann" || made.text("reason") != "load test" ||
		made.text("expiresAt") != "2099-01-01T00:00:00Z" || made.Header().Get("Location") != "/v1/rate-limit/exemptions/"+id {
		t.Errorf("%v %s", made.Header(), made.Body)
	}
	key := w.ask(t, editor, "POST /rules/a/exemptions", `{"subjectType": "api_key", "apiKey": "secret"}`).want(201)
	if key.text("subjectValue") != headgate.HashKey("secret") || strings.Contains(key.Body.String(), `"secret"`) {
		t.Errorf("%s", key.Body)
	}
	w.ask(t, editor, "POST /rules/b/exemptions", `{"subjectType": "ip_cidr", "subjectValue": "192.0.2.1"}`).want(201)
	if got := w.ask(t, viewer, "GET /rules/a/exemptions", "").texts("exemptions", "subjectType"); got != "user api_key" {
		t.Error(got)
	}
	w.ask(t, editor, "POST /exemptions", `{"subjectType": "service_account", "subjectValue": "cron"}`).want(201).
		has("rule=")
	got := w.ask(t, viewer, "GET /exemptions?limit=2", "")
	got.has("exemptions.*.rule=a a")
	if got.at("next") == nil {
		t.Errorf("%s", got.Body)
	}
	for body, want := range map[string]string{
		`{"subjectType": "api_key", "subjectValue": "sha256:cut"}`:                            "not the whole hash of a key",
		`{"subjectType": "user", "apiKey": "secret"}`:                                         "apiKey goes with",
		`{"subjectType": "planet", "subjectValue": "x"}`:                                      "or service_account",
		`{"subjectType": "ip_cidr", "subjectValue": "x"}`:                                     "invalid network",
		`{"subjectType": "user", "subjectValue": "ann", "expiresAt": "2020-01-01T00:00:00Z"}`: "which is over",
	} {
		w.ask(t, editor, "POST /rules/a/exemptions", body).says(422, want)
	}
	w.ask(t, editor, "POST /rules/a/exemptions", `{"subject": "ann"}`).says(400, `unknown field "subject"; send {`)
	w.ask(t, editor, "POST /rules/c/exemptions", `{}`).says(404)
	w.ask(t, editor, "DELETE /exemptions/"+id, "").want(204)
	w.ask(t, editor, "DELETE /exemptions/"+id, "").says(404, "exemption "+id+": not found")
	w.ask(t, editor, "DELETE /exemptions/x", "").says(404, "it is a number")
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "10/minute"),
		`{"id": "b", "by": ["tenant", "user"], "limits": {"peak": "1/s", "day": "9/day"}}`)
	made := w.ask(t, editor, "POST /overrides", `{"rule": "b", "subject": {"tenant": "acme", "user": "ann"}, "limit": "5/second",
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
		got := w.ask(t, editor, "POST /overrides", `{"overrides": [`+strings.Join(many, ",")+`]}`).want(200)
		if got.text("changed") != want {
			t.Errorf("%s changed, want %s", got.text("changed"), want)
		}
	}
	for query, want := range map[string]string{
		"?rule=b": "ann", "?subject=user=u7": "u7", "?rule=a&limit=2": "u0 u1", "?subject=user=ann&subject=tenant=acme": "ann",
		"?subject=user=ann": "",
	} {
		if got := w.ask(t, viewer, "GET /overrides"+query, "").want(200).texts("overrides", "subject.user"); got != want {
			t.Errorf("%s: %s", query, got)
		}
	}
	w.ask(t, viewer, "GET /overrides?subject=ann", "").says(400, "NAME=VALUE")
	for body, want := range map[string]string{
		`{"rule": "a", "subject": {"user": "x"}, "limit": "lots"}`:                                     "wants a rate",
		`{"rule": "a", "subject": {"ip": "x"}, "limit": "5/s"}`:                                        "the subject needs user",
		`{"overrides": [{"rule": "a", "subject": {"user": "x"}, "limit": "5/s"}, {"rule": "a"}]}`:      "override 1: ",
		`{"rule": "a", "subject": {"user": "x"}, "limit": "5/s", "expiresAt": "2020-01-01T00:00:00Z"}`: "which is over",
	} {
		w.ask(t, editor, "POST /overrides", body).says(422, want)
	}
	w.ask(t, editor, "POST /overrides", `{"rule": "c", "subject": {"user": "x"}, "limit": "5/s"}`).says(404, `rule "c"`)
	w.ask(t, editor, "POST /overrides", `[]`).says(400, "send {")
	w.ask(t, editor, "DELETE /overrides/"+id, "").want(204)
	w.ask(t, editor, "DELETE /overrides/"+id, "").says(404)
}

// A tenant sees what concerns it, and changes what belongs to its own rules: not its quota, which is ours.
func TestTenantExceptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, `{"id": "quota", "by": ["tenant"], "limit": "10/minute"}`)
	w.create(t, acme, document("sub", "5/minute"))
	const raise = `{"rule": "quota", "subject": {"tenant": "%s"}, "limit": "5000/minute"}`
	const own = `{"rule": "sub", "subject": {"tenant": "acme", "user": "ann"}, "limit": "6/minute"}`
	const free = `{"subjectType": "user", "subjectValue": "ann"}`
	ours := w.ask(t, editor, "POST /overrides", fmt.Sprintf(raise, "acme")).want(201).text("overrideId")
	w.ask(t, editor, "POST /overrides", fmt.Sprintf(raise, "globex")).want(201)
	exempt := w.ask(t, editor, "POST /rules/quota/exemptions", free).want(201).text("exemptionId")

	w.ask(t, acme, "POST /overrides", fmt.Sprintf(raise, "acme")).says(404, `override 0: rule "quota"`)
	w.ask(t, acme, "POST /rules/quota/exemptions", free).says(404)
	w.ask(t, acme, "DELETE /overrides/"+ours, "").says(404)
	w.ask(t, acme, "DELETE /exemptions/"+exempt, "").says(404)
	override := w.ask(t, acme, "POST /overrides", own).want(201).text("overrideId")
	exemption := w.ask(t, acme, "POST /rules/sub/exemptions", free).want(201).text("exemptionId")
	for as, want := range map[string]string{acme: "quota sub", globex: "quota", viewer: "quota quota sub"} {
		if got := w.ask(t, as, "GET /overrides", "").texts("overrides", "rule"); got != want {
			t.Errorf("%s sees overrides of %s", as, got)
		}
	}
	for as, want := range map[string]string{acme: "sub", globex: "", viewer: "quota sub"} {
		if got := w.ask(t, as, "GET /exemptions", "").texts("exemptions", "rule"); got != want {
			t.Errorf("%s sees exemptions of %s", as, got)
		}
	}
	w.ask(t, globex, "DELETE /overrides/"+override, "").says(404)
	w.ask(t, globex, "DELETE /exemptions/"+exemption, "").says(404)
	w.ask(t, acme, "DELETE /overrides/"+override, "").want(204)
	w.ask(t, acme, "DELETE /exemptions/"+exemption, "").want(204)
}
