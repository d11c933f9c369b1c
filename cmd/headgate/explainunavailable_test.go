package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// TestExplainServerOutage explains requests on a server whose Redis was killed. The report must say that the numbers are those of
// the local fallback share.
func TestExplainServerOutage(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	made := startJSON[tokenReport](t, 0, "token", "create", "ann")
	_, config := configure(t, fmt.Sprintf("redis: {address: redis://%s}\nadmin: {tokens_file: %s}\nnodes: 2\n",
		redis.Addr(), secretFile(t, made.Line)), `rules:
  - {id: search, by: [user], limit: 10/hour, algorithm: fixed_window, strict: true}
  - {id: free, match: {path: /free}, by: [tenant], limit: 10/hour, on_store_failure: allow}
  - {id: locked, match: {path: /locked}, by: [api_key], limit: 10/hour, on_store_failure: deny}
`)
	r := serve(t, "--config", config)
	args := []string{"explain", "--server", "http://" + r.addressOf("admin"), "--token-file", secretFile(t, made.Token)}
	r.waitForLog(redisConnected)
	if o := start(t, append(args, "user=ann")...); o.code != 0 || !strings.Contains(o.out, "  counters  redis://"+redis.Addr()+", at ") {
		t.Errorf("with Redis: %+v", o)
	}
	redis.Kill()
	spent := 0
	for range 12 {
		if a := r.check(`"user": "ann"`); a.Allowed && a.Path == "local" {
			spent++
		}
	}
	t.Logf("%d allowed by the local fallback share", spent)
	var e explainReport
	eventually(t, "an exhausted share", func() bool {
		r.check(`"user": "ann"`)
		o := start(t, append(args, "user=ann")...)
		if o.code != 1 {
			return false
		}
		e = startJSON[explainReport](t, 1, append(args, "user=ann")...)
		return true
	})
	if l := e.Limits[0]; l.DecidedBy != "local" || l.Remaining != 0 || l.Used != 0 || !e.RedisUnavailable ||
		!strings.Contains(e.Summary, "local fallback share") {
		t.Errorf("%+v", e)
	}
	o := start(t, append(args, "/free", "user=ann", "tenant=acme")...)
	for _, want := range []string{
		`^429: denied by search; retry after .*; Redis is unavailable: decided by this node's local fallback share\n`,
		`  counters  this node's local fallback share, at 20\S+ by its clock: redis://` + redis.Addr() + ` is unavailable\n`,
		`  search +10/hour, fixed_window +user=ann +0 left of the local share +in .* denied for `,
		`  free +10/hour +tenant=acme +unknown +allowed by on_store_failure\n`,
	} {
		if !regexp.MustCompile(`(?m)` + want).MatchString(o.out) {
			t.Errorf("%s is missing in\n%s", want, o.out)
		}
	}
	if strings.Contains(o.out, "HGETALL") {
		t.Errorf("it shows keys in Redis, which did not decide:\n%s", o.out)
	}
	u := start(t, append([]string{"usage", "user=ann", "--rule", "search"}, args[1:]...)...)
	if u.code != 0 || !regexp.MustCompile(`search +0 +hour .* Redis unavailable: local fallback share of 10\n`).MatchString(u.out) {
		t.Errorf("usage: %+v", u)
	}
	o = start(t, append(args, "/locked", "api_key=k")...)
	if o.code != 1 || !strings.Contains(o.out, "denied by on_store_failure") ||
		!strings.HasPrefix(o.out, "503: denied by locked; Redis is unavailable: decided by the rule's on_store_failure\n") {
		t.Errorf("%+v", o)
	}
}
