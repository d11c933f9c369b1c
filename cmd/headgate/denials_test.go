package main

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// denialsServer answers every question alike, and keeps the last.
func denialsServer(t *testing.T, answer string) (address string, asked func() url.Values) {
	t.Helper()
	var last atomic.Pointer[url.Values]
	server := serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		last.Store(&q)
		_, _ = io.WriteString(w, answer)
	}))
	return server.URL, func() url.Values { return *last.Load() }
}

// TestDenialsText tells of all that may be said of a denial, and lets nothing that a client has sent do something.
func TestDenialsText(t *testing.T) {
	t.Parallel()
	const one = `"first": "2026-11-15T12:00:00Z", "last": "2026-11-15T12:00:07Z", "node": "gate-1:8080", "rulesVersion": "0123456789ab",
		"subject": "z-4Wvob6b-_9rEEgFKup9Q", `
	address, asked := denialsServer(t, `{"nodes": 3, "nodesAnswered": 2, "problem": "1 of 3 nodes did not answer in time",
		"since": "2026-11-15T11:50:00Z", "from": "2026-11-15T11:55:00Z", "unrecorded": 1200, "denials": [
		{`+one+`"rule": "exports", "limitName": "day", "limit": "9/day", "origin": "override", "count": 3, "others": 1, "cost": 5,
		 "remaining": 2, "retryAfterSeconds": 0.2, "path": "cache", "attributes": {"user": "a'n\u001b[2Jn", "path": "/x y", "method": "GET"}},
		{`+one+`"rule": "exports", "limit": "9/day", "origin": "rule", "count": 1, "cost": 10, "remaining": 9, "retryAfterSeconds": null, "path": "local"},
		{`+one+`"rule": "partners", "limit": "9/day", "origin": "rule", "count": 1, "missing": "tenant", "path": "rules"}]}`)
	got := start(t, "denials", "--server", address, "--count", "3", "--since", "90s", "api_key="+clearKey)
	const want = `5 denials of api_key=sha256:X, the newest first; since 2026-11-15T11:50:00Z; 2 of 3 nodes answered

2026-11-15T12:00:00Z to 12:00:07  denied 3 times, and once from others who count as the same subject, by exports (day): 9/day, by an override
  asked    GET /x y user=a'n\x1b[2Jn
  why      2 left, it costs 5; it would have passed 1 s later
  decided  here, by what Redis had said a moment ago, on gate-1:8080, rules version 0123456789ab
  subject  z-4Wvob6b-_9rEEgFKup9Q

2026-11-15T12:00:00Z to 12:00:07  denied once by exports: 9/day
  asked    (not shown)
  why      9 left, it costs 10; that is more than the limit ever has
  decided  here, by this server's share: Redis did not answer, on gate-1:8080, rules version 0123456789ab
  subject  z-4Wvob6b-_9rEEgFKup9Q

2026-11-15T12:00:00Z to 12:00:07  denied once by partners: 9/day
  asked    (not shown)
  why      the request has no tenant, on which the rule insists
  decided  by the rule itself, on gate-1:8080, rules version 0123456789ab
  subject  z-4Wvob6b-_9rEEgFKup9Q

note: api_key is read as sha256:X, its hash
note: not all is shown: 1 of 3 nodes did not answer in time
note: 1,200 denials of anybody in this time could not be recorded: there were too many
note: what was before 2026-11-15T11:55:00Z is not known: servers remember what they have denied since they started, and not for ever
note: there may be more: --count shows them, --since and --rule narrow it down
note: how it is now: headgate explain --server SERVER GET '/x y' api_key=sha256:X "$(printf %b 'user=a'\''n\0033[2Jn')"
`
	text := regexp.MustCompile(`sha256:\w+`).ReplaceAllString(strings.ReplaceAll(got.out, address, "SERVER"), "sha256:X")
	if got.code != 1 || text != want {
		t.Errorf("exit %d\n%s", got.code, text)
	}
	q := asked()
	if q.Get("since") != "90" || q.Get("limit") != "3" || !strings.HasPrefix(q.Get("attribute"), "api_key=sha256:") {
		t.Errorf("asked %v", q)
	}
	if start(t, "denials", "--server", address, "client=ann"); !strings.HasPrefix(asked().Get("attribute"), "client=sha256:") {
		t.Errorf("asked %v", asked())
	}
	if o := start(t, "denials", "--server", address, "--", "-4Wvob6b-_9rEEgFKup9Qz"); o.code != 1 ||
		asked().Get("subject") != "-4Wvob6b-_9rEEgFKup9Qz" || !strings.HasPrefix(o.out, "6 denials of -4Wvob6b-_9rEEgFKup9Qz,") {
		t.Errorf("%v: %+v", asked(), o)
	}
}

// A flood of which not all was recorded, and a server that did not answer, are no "nobody was denied".
func TestDenialsUnknown(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]int{
		`"nodes": 1, "nodesAnswered": 1`:                                  0,
		`"nodes": 1, "nodesAnswered": 1, "unrecorded": 1`:                 1,
		`"nodes": 2, "nodesAnswered": 1, "problem": "one did not answer"`: 1,
	} {
		address, _ := denialsServer(t, `{"since": "2026-11-15T11:50:00Z", `+answer+`}`)
		if r := startJSON[denialsReport](t, want, "denials", "--server", address); r.Denials.Denials == nil || r.Notes == nil {
			t.Errorf("%+v", r)
		}
	}
	address, _ := denialsServer(t, `{}`)
	if o := start(t, "denials", "--server", address); o.code != 2 || !strings.Contains(o.errors, "not headgate's admin API") {
		t.Errorf("%+v", o)
	}
}
