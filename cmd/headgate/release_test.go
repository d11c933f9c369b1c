package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestRelease finds requests that never end on another server, and releases their units, which are leased for too long to wait.
func TestRelease(t *testing.T) {
	t.Parallel()
	_, second, args := watchedServers(t, "clear")
	const export = `{"attributes": {"tenant": "acme", "path": "/exports"}, "begin": true}`
	begin := func() bool {
		t.Helper()
		_, response := send(t, "POST", "http://"+second.addressOf("http")+"/v1/check", export)
		return strings.Contains(response, `"slots":`)
	}
	var explained string
	holder := regexp.MustCompile(`(?m)^  exports +\S+ +2 +in \d+ min \d+ s +([0-9a-f]{16})$`)
	eventually(t, "explain shows the holder", func() bool {
		begin() // Redis may be too slow for some
		explained = start(t, append([]string{"explain", "tenant=acme", "path=/exports"}, args...)...).out
		return holder.MatchString(explained)
	})
	if !strings.HasPrefix(explained, "429: denied by exports; retry when a request in flight has ended\n") {
		t.Error(explained)
	}
	id := holder.FindStringSubmatch(explained)[1]
	release := func() outcome { return start(t, append([]string{"release", "exports", "tenant=acme", id}, args...)...) }
	if got := release(); got.code != 0 || !regexp.MustCompile(`^released 2 units of \S+:\d+\n$`).MatchString(got.out) {
		t.Errorf("%+v", got)
	}
	eventually(t, "another export begins", begin)
	eventually(t, "the holder has no units", func() bool {
		got := release()
		return got.code == 2 && strings.HasSuffix(got.errors, "holder "+id+" has no units of this subject: list the holders with headgate explain\n")
	})
}
