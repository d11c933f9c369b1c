package main

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/denials"
)

// denialsServer starts a server that returns a fixed response. lastQuery returns the query of the last request.
func denialsServer(t *testing.T, response string) (address string, lastQuery func() url.Values) {
	t.Helper()
	var last atomic.Pointer[url.Values]
	server := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		last.Store(&q)
		_, _ = io.WriteString(w, response)
	}))
	return server.URL, func() url.Values { return *last.Load() }
}

// TestDenialsText checks the text of all kinds of denials, and that values sent by clients are escaped.
func TestDenialsText(t *testing.T) {
	t.Parallel()
	const one = `"first": "2026-11-15T12:00:00Z", "last": "2026-11-15T12:00:07Z", "node": "gate-1:8080", "rulesVersion": "0123456789ab",
		"subject": "z-4Wvob6b-_9rEEgFKup9Q", `
	address, lastQuery := denialsServer(t, `{"nodes": 3, "nodesAnswered": 2, "problem": "1 of 3 nodes did not answer in time",
		"since": "2026-11-15T11:50:00Z", "from": "2026-11-15T11:55:00Z", "unrecorded": 1200, "denials": [
		{`+one+`"rule": "exports", "limitName": "day", "limit": "9/day", "origin": "override", "count": 3, "others": 1, "cost": 5,
		 "remaining": 2, "retryAfterSeconds": 0.2, "path": "cache", "attributes": {"user": "a'n\u001b[2Jn", "path": "/x y", "method": "GET"}},
		{`+one+`"rule": "exports", "limit": "9/day", "origin": "rule", "count": 1, "cost": 10, "remaining": 9, "retryAfterSeconds": null, "path": "local"},
		{`+one+`"rule": "partners", "limit": "9/day", "origin": "rule", "count": 1, "missing": "tenant", "path": "rules"}]}`)
	got := start(t, "denials", "--server", address, "--count", "3", "--since", "90s", "api_key="+clearKey)
	const want = `5 denials of api_key=sha256:X, newest first; since 2026-11-15T11:50:00Z; 2 of 3 nodes responded

2026-11-15T12:00:00Z to 12:00:07  denied 3 times (and once from other clients of the same subject) by exports (day): 9/day, override
  request  GET /x y user=a'n\x1b[2Jn
  reason   2 remaining, cost 5; retry after 1 s
  decided  locally, from a recently cached denial, on gate-1:8080, rules version 0123456789ab
  subject  z-4Wvob6b-_9rEEgFKup9Q

2026-11-15T12:00:00Z to 12:00:07  denied once by exports: 9/day
  request  (not shown)
  reason   9 remaining, cost 10; more than the limit ever grants
  decided  locally, by the local fallback share: Redis unavailable, on gate-1:8080, rules version 0123456789ab
  subject  z-4Wvob6b-_9rEEgFKup9Q

2026-11-15T12:00:00Z to 12:00:07  denied once by partners: 9/day
  request  (not shown)
  reason   the request has no tenant, which the rule requires
  decided  by the rule itself, on gate-1:8080, rules version 0123456789ab
  subject  z-4Wvob6b-_9rEEgFKup9Q

note: api_key hashed to sha256:X
note: incomplete: 1 of 3 nodes did not answer in time
note: 1,200 denials (of all clients) in this period not recorded: too many at once
note: denials before 2026-11-15T11:55:00Z are not available: servers keep recent denials in memory since they started
note: there may be more: raise --count, or narrow the list with --since and --rule
note: current state: headgate explain --server SERVER GET '/x y' api_key=sha256:X "$(printf %b 'user=a'\''n\0033[2Jn')"
`
	text := regexp.MustCompile(`sha256:\w+`).ReplaceAllString(strings.ReplaceAll(got.out, address, "SERVER"), "sha256:X")
	if got.code != 1 || text != want {
		t.Errorf("exit %d\n%s", got.code, text)
	}
	q := lastQuery()
	if q.Get("since") != "90" || q.Get("limit") != "3" || !strings.HasPrefix(q.Get("attribute"), "api_key=sha256:") {
		t.Errorf("query %v", q)
	}
	if start(t, "denials", "--server", address, "client=ann"); !strings.HasPrefix(lastQuery().Get("attribute"), "client=sha256:") {
		t.Errorf("query %v", lastQuery())
	}
	if o := start(t, "denials", "--server", address, "--", "-4Wvob6b-_9rEEgFKup9Qz"); o.code != 1 ||
		lastQuery().Get("subject") != "-4Wvob6b-_9rEEgFKup9Qz" || !strings.HasPrefix(o.out, "6 denials of -4Wvob6b-_9rEEgFKup9Qz,") {
		t.Errorf("%v: %+v", lastQuery(), o)
	}
}

// TestDenialsIncomplete checks that the exit code is not 0 if denials were not recorded or a node did not respond.
func TestDenialsIncomplete(t *testing.T) {
	t.Parallel()
	for response, want := range map[string]int{
		`"nodes": 1, "nodesAnswered": 1`:                                  0,
		`"nodes": 1, "nodesAnswered": 1, "unrecorded": 1`:                 1,
		`"nodes": 2, "nodesAnswered": 1, "problem": "one did not answer"`: 1,
	} {
		address, _ := denialsServer(t, `{"since": "2026-11-15T11:50:00Z", `+response+`}`)
		if r := startJSON[denialsReport](t, want, "denials", "--server", address); r.Denials.Denials == nil || r.Notes == nil {
			t.Errorf("%+v", r)
		}
	}
	address, _ := denialsServer(t, `{}`)
	if o := start(t, "denials", "--server", address); o.code != 2 || !strings.Contains(o.errors, "not headgate's admin API") {
		t.Errorf("%+v", o)
	}
}

// TestDenialOfConcurrency checks the reason if requests in flight use up a limit: it is not known when they end.
func TestDenialOfConcurrency(t *testing.T) {
	t.Parallel()
	for cost, want := range map[int64]string{1: "0 remaining, cost 1; until a request in flight ends", 3: "0 remaining, cost 3; more than the limit ever grants"} {
		got := denialText(&denials.Record{Rule: "slots", Limit: "2 concurrent, lease 1m", Count: 1, Cost: cost, Path: headgate.PathStore})
		if !strings.Contains(got, want) || !strings.Contains(got, "decided  by the counter,") {
			t.Error(got)
		}
	}
}
