package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// homeRules are rules whose windows outlast the test, so that all counts are exact.
const homeRules = `rules:
  - {id: strict, match: {path: /strict}, by: [user], regions: home, strict: true, limit: {rate: 10/hour, algorithm: fixed_window}}
  - {id: deny, match: {path: /deny}, by: [user], regions: home, on_store_failure: deny, limit: {rate: 10/hour, algorithm: fixed_window}}
  - {id: local, match: {path: /local}, by: [user], regions: home, limit: {rate: 30/hour, algorithm: fixed_window}}
  - {id: home, match: {path: /both}, by: [user], regions: home, limit: {rate: 3/hour, algorithm: fixed_window}}
  - {id: here, match: {path: /both}, by: [tenant], limit: {rate: 5/hour, algorithm: fixed_window}}
`

// homesShare is the share of the rule local in each of the three regions.
const homesShare = 10

// request sends a request of a user and a tenant.
func (r *testServer) request(path, user, tenant string) checkResponse {
	return r.check(fmt.Sprintf(`"path": %q, "method": "GET", "user": %q, "tenant": %q`, path, user, tenant))
}

// allowedOf returns how many of some requests are allowed.
func (r *testServer) allowedOf(requests int, path, user, tenant string) (allowed int) {
	for range requests {
		if r.request(path, user, tenant).Allowed {
			allowed++
		}
	}
	return allowed
}

// TestHomes counts each subject in one of three regions.
func TestHomes(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	servers := serveRegions(t, homeRules)
	for i := range 4 { // they have different homes
		var allowed atomic.Int64
		var sending sync.WaitGroup
		for _, r := range servers {
			for range 10 {
				sending.Go(func() {
					if r.request("/strict", fmt.Sprint("user", i), "").Allowed {
						allowed.Add(1)
					}
				})
			}
		}
		if sending.Wait(); allowed.Load() != 10 {
			t.Errorf("user%d: %d of 30 requests were allowed, want 10", i, allowed.Load())
		}
	}

	eu := servers["eu"]
	for i := range 4 {
		// The home denies the last two, which must not count for the tenant; then the tenant's limit denies, which must not count in the home.
		user, other, tenant := fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("t", i)
		counts := []int{eu.allowedOf(5, "/both", user, tenant), eu.allowedOf(4, "/both", other, tenant), eu.allowedOf(3, "/both", other, tenant+"'")}
		if got := fmt.Sprint(counts); got != "[3 2 1]" {
			t.Errorf("%s: allowed %s, want [3 2 1]", tenant, got)
		}
	}
	servers["us"].stop()
	<-servers["us"].done
	checkHomeDown(t, eu)
}

// checkHomeDown checks that rules decide as on_store_failure says for users whose home is down, and that others do not notice.
func checkHomeDown(t *testing.T, eu *testServer) {
	t.Helper()
	down := ""
	for i := range 20 {
		user := fmt.Sprint("user", i)
		switch d := eu.request("/deny", user, ""); {
		case d.Path == "failed" && !d.Allowed:
			down = user
		case i >= 4 && (d.Path == "failed" || !d.Allowed):
			t.Errorf("%s: %+v", user, d)
		}
	}
	if down == "" {
		t.Fatal("no user has its home in us")
	}
	if n := eu.allowedOf(5, "/deny", down, ""); n != 0 {
		t.Errorf("%d requests were allowed by a rule that denies them", n)
	}
	if n := eu.allowedOf(30, "/local", down, ""); n != homesShare {
		t.Errorf("%d requests were allowed, want the share of %d", n, homesShare)
	}
	_, metrics := send(t, http.MethodGet, "http://"+eu.addressOf("ops")+"/metrics", "")
	for _, line := range []string{`headgate_region_home_up{peer="us"} 0`, `headgate_region_home_up{peer="ap"} 1`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
}
