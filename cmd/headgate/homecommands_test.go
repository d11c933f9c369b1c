package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// userOf returns a user whose home is a region.
func (o *operatedRegions) userOf(region string) string {
	o.t.Helper()
	for i := range 100 {
		user := fmt.Sprint("user", i)
		r := startJSON[explainReport](o.t, 0, o.args("explain", "GET", "/strict", "user="+user)...)
		if home := r.Limits[0].Home; home == nil || home.Own != (home.Name == "eu") || home.Problem != "" {
			o.t.Fatalf("%s: %+v", user, home)
		} else if home.Name == region {
			return user
		}
	}
	o.t.Fatal("no user has its home in " + region)
	return ""
}

// expect runs a command on eu, and checks that what it prints matches expressions. No Redis is unavailable.
func (o *operatedRegions) expect(code int, command string, want ...string) {
	o.t.Helper()
	r := start(o.t, o.args(strings.Fields(command)...)...)
	text := r.out + r.errors
	for _, expression := range want {
		if r.code != code || !regexp.MustCompile("(?m)"+expression).MatchString(text) {
			o.t.Errorf("%s: code %d, want %d and %s:\n%s", command, r.code, code, expression, text)
		}
	}
	if regexp.MustCompile(`Redis (is )?unavailable|redis://\S+:? (is|store) unavailable`).MatchString(text) {
		o.t.Errorf("%s: it says that Redis is unavailable:\n%s", command, text)
	}
}

// TestHomeCommands checks what explain, usage, reset and grant say about the home of a subject, while it is up and while it is down.
func TestHomeCommands(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	o := newOperatedRegions(t, homeRules)
	here, there := o.userOf("eu"), o.userOf("us")
	const redis = `redis://\S+`
	o.expect(0, "explain GET /strict user="+here, "^  strict .* user="+here+`, home eu \(this region\) +0 of 10 `, "  strict$", "  counters  "+redis+", at ")
	o.expect(0, "explain GET /strict user="+there, "^  strict .* user="+there+", home us +0 of 10 ", "  strict, in region us$", "  counters  region us, at ")
	o.expect(0, "explain GET /both tenant=t user="+there, "  counters  "+redis+" and region us, at ")
	o.expect(0, "usage --rule strict user="+there, "^strict .* home us$")
	o.expect(0, "usage --rule strict user="+here, `^strict .* home eu \(this region\)$`)
	o.expect(0, "grant strict user="+there+" 1", "^strict .* home us$")

	o.stop("us")
	down := "region us, the home of user=" + there + ", does not respond: .*connection refused"
	const local = "home region us is unavailable: decided by this node's local fallback share$"
	o.expect(0, "explain GET /local user="+there, "^allowed: within 1 limit; "+local, "^  local: "+down+"$", "  10 left of the local share ",
		"  counters  this node's local fallback share, at .*: region us is unavailable$")
	o.expect(0, "explain GET /both tenant=t user="+there, "^allowed: within 2 limits; "+local,
		"  counters  "+redis+" and this node's local fallback share, at .*: region us is unavailable$")
	o.expect(1, "explain GET /deny user="+there, "^503: denied by deny; home region us is unavailable: decided by the rule's on_store_failure$")
	o.expect(0, "usage --rule local user="+there, "^local .* home us; it is unavailable: local fallback share of 30$")
	o.expect(2, "usage --rule deny user="+there, down)
	o.expect(2, "reset local user="+there, down+"; repeat the reset when it responds$")
	o.expect(2, "grant local user="+there+" 3", down+"; repeat the grant when it responds$")
	o.expect(0, "reset local user="+here, `^local .* home eu \(this region\)$`)
	if r := startJSON[explainReport](t, 0, o.args("explain", "GET", "/local", "user="+there)...); r.RedisUnavailable ||
		r.Limits[0].DecidedBy != "local" || !strings.HasPrefix(r.Limits[0].Home.Problem, "does not respond: ") {
		t.Errorf("%+v", r)
	}
}
