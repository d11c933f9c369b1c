package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

// watchedRules have limits whose results do not depend on the duration of requests.
const watchedRules = `rules:
  - {id: login-by-ip, match: {path: /login, method: POST}, by: [ip], limit: 5/minute}
  - id: search
    match: {path: /search}
    by: [user]
    limits: {peak: 8/minute, day: 100/day}
    tiers: {free: {limits: {peak: 4/minute, day: 50/day}}}
  - {id: exports, match: {path: /exports}, by: [tenant], limit: {concurrent: 2, lease: 10m}, on_store_failure: deny}
`

// watchedServers starts two servers on one Redis and waits until they have found each other. args select the first server.
func watchedServers(t *testing.T, show string) (first, second *testServer, args []string) {
	t.Helper()
	token := startJSON[tokenReport](t, 0, "token", "create", "ann", "--role", "editor")
	dir, file := configure(t, fmt.Sprintf("redis: {address: redis://%s, deadline: 1s}\nadmin: {tokens_file: tokens}\nshow_subjects: %s\n",
		testenv.Start(t, testenv.Redis).Addr(), show), watchedRules)
	writeFile(t, filepath.Join(dir, "tokens"), token.Line)
	writeFile(t, filepath.Join(dir, "token"), token.Token)
	first, second = serve(t, "--config", file), serve(t, "--config", file)
	args = []string{"--server", "http://" + first.addressOf("admin"), "--token-file", filepath.Join(dir, "token")}
	for _, r := range []*testServer{first, second} {
		r.waitForLog(redisConnected)
		eventually(t, "both nodes respond", func() bool {
			args := append([]string{"top", "--server", "http://" + r.addressOf("admin")}, args[2:]...)
			return strings.Contains(start(t, args...).out, "2 of 2 nodes responded")
		})
	}
	return first, second, args
}

// sendChecks sends the same check several times.
func (r *testServer) sendChecks(times int, attributes string) {
	r.t.Helper()
	for range times {
		req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.addressOf("http")+"/v1/check",
			strings.NewReader(`{"attributes": {`+attributes+`}}`))
		if err != nil {
			r.t.Fatal(err)
		}
		req.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			r.t.Fatal(err)
		}
		_ = res.Body.Close()
	}
}

const (
	annSearches = `"user": "ann", "tier": "free", "method": "GET", "path": "/search"`
	bobSearches = `"user": "bob", "method": "GET", "path": "/search"`
	evilLogsIn  = `"ip": "192.0.2.1", "method": "POST", "path": "/login"`
)

// replacements are the values in the docs for output that differs between runs.
var replacements = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ( to \d\d:\d\d:\d\d)?`), "2026-12-04T18:00:00Z"},
	{regexp.MustCompile(`since 2026-12-04T18:00:00Z`), "since 2026-12-04T17:50:00Z"},
	{regexp.MustCompile(`before 2026-12-04T18:00:00Z`), "before 2026-12-04T17:58:00Z"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+ --token-file \S+`), "https://gate:8083 --token-file token"},
	{regexp.MustCompile(` on \S+, rules version [0-9a-f]{12}`), " on gate-2:8080, rules version 5ad2f0e1c93b"},
}

// TestOperationsDocs runs the top and denials commands in docs/operations.md and compares their output.
func TestOperationsDocs(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "operations.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, second, args := watchedServers(t, "clear")
	first.sendChecks(12, evilLogsIn)
	second.sendChecks(20, evilLogsIn)
	second.sendChecks(9, annSearches)
	first.sendChecks(7, bobSearches)
	blocks := 0
	got := regexp.MustCompile("(?s)```console\n\\$ headgate (top|denials).*?```").ReplaceAllStringFunc(string(text), func(block string) string {
		var b strings.Builder
		b.WriteString("```console\n")
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ headgate "); ok {
				blocks++
				o := start(t, append(strings.Fields(command), args...)...)
				b.WriteString(line + o.out + o.errors)
			}
		}
		output := b.String()
		for _, s := range replacements {
			output = s.pattern.ReplaceAllString(output, s.with)
		}
		return output + "```"
	})
	if *update {
		writeFile(t, file, got)
	} else if got != string(text) || blocks != 3 {
		t.Errorf("%d commands; the output has changed to\n%s", blocks, got)
	}
}

// TestTopHashedSubjects checks that servers with show_subjects: hash show no names.
func TestTopHashedSubjects(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	first, second, args := watchedServers(t, "hash")
	first.sendChecks(6, annSearches)
	second.sendChecks(6, annSearches)
	second.sendChecks(10, bobSearches)
	top := startJSON[topReport](t, 0, append([]string{"top"}, args...)...)
	if len(top.Denied) != 2 || top.Denied[0].Denied != 8 || top.Denied[1].Denied != 2 || top.Replied != 2 {
		t.Fatalf("%+v", top)
	}
	all := start(t, append([]string{"top"}, args...)...)
	everything := start(t, append([]string{"denials"}, args...)...)
	bob := start(t, append([]string{"denials", "--rule", "search"}, append(args, "--", top.Denied[1].Subject)...)...)
	for _, o := range []outcome{all, everything, bob} {
		if strings.Contains(o.out, "ann") || strings.Contains(o.out, "bob") || strings.Contains(o.out, "/search") || o.errors != "" {
			t.Errorf("the output contains names: %+v", o)
		}
	}
	if !strings.HasSuffix(all.out, "\nsubjects are hashed; to show them, set show_subjects: clear in the servers' config\n") {
		t.Error(all.out)
	}
	if everything.code != 1 || strings.Count(everything.out, " times by ") != 3 || strings.Contains(everything.out, "headgate explain") {
		t.Errorf("%+v", everything)
	}
	if bob.code != 1 || !strings.HasPrefix(bob.out, "2 denials of "+top.Denied[1].Subject) {
		t.Errorf("%+v", bob)
	}
	ann := start(t, append([]string{"denials", "user=ann"}, args...)...)
	if ann.code != 1 || !strings.HasPrefix(ann.out, "8 denials of user=ann") ||
		!strings.Contains(ann.out, "current state (add the path, which is not shown): headgate explain --server "+args[1]+
			" --token-file "+args[3]+" GET user=ann tier=free\n") {
		t.Errorf("%+v", ann)
	}
	if zoe := start(t, append([]string{"denials", "user=zoe"}, args...)...); zoe.code != 0 ||
		!strings.HasPrefix(zoe.out, "no requests of user=zoe were denied; ") {
		t.Errorf("%+v", zoe)
	}
	if o := start(t, append([]string{"top", "--rule", "serch"}, args...)...); o.code != 2 ||
		!strings.Contains(o.errors, `rule "serch": not in force on this server: headgate rules export`) {
		t.Errorf("%+v", o)
	}
}

// TestTopUnresponsiveNode checks that the result is marked as incomplete if a node does not respond.
func TestTopUnresponsiveNode(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	redis := testenv.Start(t, testenv.Redis)
	gone, err := redisstore.Open("redis://" + redis.Addr()) // it is announced as a node and never responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gone.Close)
	_, file := configure(t, fmt.Sprintf("redis: {address: redis://%s, deadline: 1s}\nadmin: {tokens_file: tokens}\n", redis.Addr()), watchedRules)
	token := startJSON[tokenReport](t, 0, "token", "create", "ann", "--role", "editor")
	writeFile(t, filepath.Join(filepath.Dir(file), "tokens"), token.Line)
	tokenFile := filepath.Join(filepath.Dir(file), "token")
	writeFile(t, tokenFile, token.Token)
	r := serve(t, "--config", file)
	r.waitForLog(redisConnected)
	args := []string{"--server", "http://" + r.addressOf("admin"), "--token-file", tokenFile}
	eventually(t, "both nodes are announced", func() bool {
		_, metrics := send(t, http.MethodGet, "http://"+r.addressOf("ops")+"/metrics", "")
		return strings.Contains(metrics, "\nheadgate_nodes 2\n")
	})
	for _, command := range []string{"top", "denials"} {
		o := start(t, append([]string{command}, args...)...)
		if o.code != 1 || !strings.Contains(o.out, "1 of 2 nodes responded") || !strings.Contains(o.out, "incomplete: 1 of 2 nodes did not answer") {
			t.Errorf("%s: %+v", command, o)
		}
	}
}

// TestTopWithoutRedis runs top against --dev. It also checks that profiles are served on the admin listener only, and to admins only.
func TestTopWithoutRedis(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	_, file := configure(t, "", watchedRules)
	r := serve(t, "--dev", "--config", file)
	r.sendChecks(9, annSearches)
	address := "http://" + r.addressOf("admin")
	if o := start(t, "top", "--server", address); o.code != 0 || !strings.Contains(o.out, "1 of 1 node responded") ||
		!strings.Contains(o.out, "\n5       1.0         search  ") {
		t.Errorf("%+v", o)
	}
	for listener, want := range map[string]int{"http": 404, "ops": 404, "admin": 200} {
		if status, _ := send(t, http.MethodGet, "http://"+r.addressOf(listener)+"/debug/pprof/heap", ""); status != want {
			t.Errorf("%s: %d", listener, status)
		}
	}
	_, _, args := watchedServers(t, "hash")
	if status, _ := send(t, http.MethodGet, args[1]+"/debug/pprof/heap", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
}
