package attack

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// change sends one request to the admin API of the first server and returns the response, including 429.
func (c *controlPlane) change(token, method, path, body string) (status int, retryAfter, detail string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.admins[0]+"/v1/rate-limit"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, response.Header.Get("Retry-After"), string(text)
}

// TestTenantFillsTheHistory: a tenant's editor repeats the same changes. The history and the audit keep all of them, so changes are
// limited: by time and not by space, since evicting entries would be a way to remove old ones.
func TestTenantFillsTheHistory(t *testing.T) {
	const maxChanges = 50_000 // changes a day, by default
	c := startControlPlane(t)
	if status, text := c.send(0, c.editors[0], "POST", "/rules", `{"id": "api", "by": ["tenant", "user"], "limit": "1000/minute"}`); status != http.StatusCreated {
		t.Fatalf("%d: %s", status, text)
	}
	overrides := func(n, limit int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`{"rule": "api", "subject": {"tenant": "acme", "user": "u%d"}, "limit": "%d/minute"}`, i, limit)
		}
		return `{"overrides": [` + strings.Join(all, ",") + `]}`
	}
	accepted, rejected := 0, 0
	var wait, detail string
	for i := range size(6, 8) {
		status, retryAfter, text := c.change(c.editors[i], "POST", "/overrides", overrides(9_000, 10+i))
		switch status {
		case http.StatusOK:
			accepted++
		case http.StatusTooManyRequests:
			rejected++
			wait, detail = retryAfter, text
		default:
			t.Fatalf("%d: %s", status, text)
		}
	}
	entries := c.count("SELECT count(*) FROM rate_limit_rule_audit WHERE tenant = 'acme'")
	t.Logf("9000 overrides changed repeatedly: %d times, %d rejected, %d audit entries; Retry-After: %s; %s", accepted, rejected, entries, wait, detail)
	if accepted != 5 || entries != 1+5*9_000 {
		t.Errorf("%d changes of 9000 overrides accepted, %d audit entries: want 5, %d", accepted, entries, 1+5*9_000)
	}
	wantWords(t, detail, "quota of tenant acme", "changes", "tenants.max_changes_per_day", "operator")
	if seconds, err := strconv.Atoi(wait); err != nil || seconds < 1 || seconds > 86_400 {
		t.Errorf("Retry-After: %q", wait)
	}
	// The rest of the quota can be used, and then changes are possible at the rate of the quota.
	left := 0
	for i := range size(6, 8) {
		if status, _, _ := c.change(c.editors[i], "POST", "/overrides", overrides(1_000, 20+i)); status == http.StatusOK {
			left++
		}
	}
	if left > 5 {
		t.Errorf("%d more changes of 1000 overrides were accepted, want at most 5", left)
	}
	if entries := c.count("SELECT count(*) FROM rate_limit_rule_audit WHERE tenant = 'acme'"); entries > maxChanges+500 { // the quota refills during the test
		t.Errorf("%d audit entries, want %d", entries, maxChanges)
	}
	// Operators are not limited.
	if status, _, text := c.change(c.operator, "POST", "/overrides", overrides(1_000, 50)); status != http.StatusOK {
		t.Errorf("an operator: %d: %s", status, text)
	}
	if n := c.count("SELECT count(*) FROM rate_limit_rule_audit WHERE actor = 'eve0' AND object = 'rule'"); n != 1 {
		t.Errorf("%d entries of the first change, want 1", n)
	}
}
