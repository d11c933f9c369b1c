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

// watchedRules are such that nothing depends on how long requests take.
const watchedRules = `rules:
  - {id: login-by-ip, match: {path: /login, method: POST}, by: [ip], limit: 5/minute}
  - id: search
    match: {path: /search}
    by: [user]
    limits: {peak: 8/minute, day: 100/day}
    tiers: {free: {limits: {peak: 4/minute, day: 50/day}}}
`

// watchedServers are two on one Redis, that know of each other; args are how to ask the first.
func watchedServers(t *testing.T, show string) (first, second *running, args []string) {
	t.Helper()
	token := startJSON[tokenReport](t, 0, "token", "create", "ann")
	dir, file := configure(t, fmt.Sprintf("redis: {address: redis://%s, deadline: 1s}\nadmin: {tokens_file: tokens}\nshow_subjects: %s\n",
		testenv.Start(t, testenv.Redis).Addr(), show), watchedRules)
	writeFile(t, filepath.Join(dir, "tokens"), token.Line)
	writeFile(t, filepath.Join(dir, "token"), token.Token)
	first, second = serve(t, "--config", file), serve(t, "--config", file)
	args = []string{"--server", "http://" + first.at("admin"), "--token-file", filepath.Join(dir, "token")}
	for _, r := range []*running{first, second} {
		r.says("Redis answers")
		eventually(t, "the nodes know of each other", func() bool {
			args := append([]string{"top", "--server", "http://" + r.at("admin")}, args[2:]...)
			return strings.Contains(start(t, args...).out, "2 of 2 nodes answered")
		})
	}
	return first, second, args
}

// asks sends a check so many times.
func (r *running) asks(times int, attributes string) {
	r.t.Helper()
	for range times {
		req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.at("http")+"/v1/check",
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

// stable is what differs from run to run, and what docs have instead.
var stable = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ( to \d\d:\d\d:\d\d)?`), "2026-12-04T18:00:00Z"},
	{regexp.MustCompile(`since 2026-12-04T18:00:00Z`), "since 2026-12-04T17:50:00Z"},
	{regexp.MustCompile(`before 2026-12-04T18:00:00Z`), "before 2026-12-04T17:58:00Z"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+ --token-file \S+`), "https://gate:8083 --token-file token"},
	{regexp.MustCompile(` on \S+, rules version [0-9a-f]{12}`), " on gate-2:8080, rules version 5ad2f0e1c93b"},
}

// TestOperationsDocs runs the lines of docs/operations.md that begin with $ headgate top or denials, and compares what they print.
func TestOperationsDocs(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "operations.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, second, args := watchedServers(t, "clear")
	first.asks(12, evilLogsIn)
	second.asks(20, evilLogsIn)
	second.asks(9, annSearches)
	first.asks(7, bobSearches)
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
		said := b.String()
		for _, s := range stable {
			said = s.pattern.ReplaceAllString(said, s.instead)
		}
		return said + "```"
	})
	if *update {
		writeFile(t, file, got)
	} else if got != string(text) || blocks != 3 {
		t.Errorf("%d commands; it is now\n%s", blocks, got)
	}
}

// TestSeenHashed is about servers that keep names to themselves.
func TestSeenHashed(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	first, second, args := watchedServers(t, "hash")
	first.asks(6, annSearches)
	second.asks(6, annSearches)
	second.asks(10, bobSearches)
	top := startJSON[topReport](t, 0, append([]string{"top"}, args...)...)
	if len(top.Denied) != 2 || top.Denied[0].Denied != 8 || top.Denied[1].Denied != 2 || top.Replied != 2 {
		t.Fatalf("%+v", top)
	}
	all := start(t, append([]string{"top"}, args...)...)
	everybody := start(t, append([]string{"denials"}, args...)...)
	bob := start(t, append([]string{"denials", "--rule", "search"}, append(args, "--", top.Denied[1].Subject)...)...)
	for _, o := range []outcome{all, everybody, bob} {
		if strings.Contains(o.out, "ann") || strings.Contains(o.out, "bob") || strings.Contains(o.out, "/search") || o.errors != "" {
			t.Errorf("it has names: %+v", o)
		}
	}
	if !strings.HasSuffix(all.out, "\nsubjects are hashes: show_subjects: clear in the servers' config shows who they are\n") {
		t.Error(all.out)
	}
	if everybody.code != 1 || strings.Count(everybody.out, " times by ") != 3 || strings.Contains(everybody.out, "headgate explain") {
		t.Errorf("%+v", everybody)
	}
	if bob.code != 1 || !strings.HasPrefix(bob.out, "2 denials of "+top.Denied[1].Subject) {
		t.Errorf("%+v", bob)
	}
	ann := start(t, append([]string{"denials", "user=ann"}, args...)...)
	if ann.code != 1 || !strings.HasPrefix(ann.out, "8 denials of user=ann") ||
		!strings.Contains(ann.out, "how it is now (add the path, which is not shown): headgate explain --server "+args[1]+
			" --token-file "+args[3]+" GET user=ann tier=free\n") {
		t.Errorf("%+v", ann)
	}
	if nobody := start(t, append([]string{"denials", "user=zoe"}, args...)...); nobody.code != 0 ||
		!strings.HasPrefix(nobody.out, "no request of user=zoe was denied; ") {
		t.Errorf("%+v", nobody)
	}
	if o := start(t, append([]string{"top", "--rule", "serch"}, args...)...); o.code != 2 ||
		!strings.Contains(o.errors, `rule "serch": not in force on this server: headgate rules export`) {
		t.Errorf("%+v", o)
	}
}

// TestNodeGone has a node that ends without a word: what it knew is missing, and that is said.
func TestNodeGone(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	redis := testenv.Start(t, testenv.Redis)
	gone, err := redisstore.Open("redis://" + redis.Addr()) // it counts as a node, and answers nobody
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gone.Close)
	_, file := configure(t, fmt.Sprintf("redis: {address: redis://%s, deadline: 1s}\nadmin: {tokens_file: tokens}\n", redis.Addr()), watchedRules)
	token := startJSON[tokenReport](t, 0, "token", "create", "ann")
	writeFile(t, filepath.Join(filepath.Dir(file), "tokens"), token.Line)
	tokenFile := filepath.Join(filepath.Dir(file), "token")
	writeFile(t, tokenFile, token.Token)
	r := serve(t, "--config", file)
	r.says("Redis answers")
	args := []string{"--server", "http://" + r.at("admin"), "--token-file", tokenFile}
	eventually(t, "both are known", func() bool {
		_, metrics := send(t, http.MethodGet, "http://"+r.at("ops")+"/metrics", "")
		return strings.Contains(metrics, "\nheadgate_nodes 2\n")
	})
	for _, command := range []string{"top", "denials"} {
		o := start(t, append([]string{command}, args...)...)
		if o.code != 1 || !strings.Contains(o.out, "1 of 2 nodes answered") || !strings.Contains(o.out, "not all is shown: 1 of 2 nodes did not answer") {
			t.Errorf("%s: %+v", command, o)
		}
	}
}

// TestSeenAlone tries it, without Redis. Profiles are on the admin's listener and nowhere else, and for admins only.
func TestSeenAlone(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	_, file := configure(t, "", watchedRules)
	r := serve(t, "--dev", "--config", file)
	r.asks(9, annSearches)
	address := "http://" + r.at("admin")
	if o := start(t, "top", "--server", address); o.code != 0 || !strings.Contains(o.out, "1 of 1 node answered") ||
		!strings.Contains(o.out, "\n5        1.0         search  ") {
		t.Errorf("%+v", o)
	}
	for listener, want := range map[string]int{"http": 404, "ops": 404, "admin": 200} {
		if status, _ := send(t, http.MethodGet, "http://"+r.at(listener)+"/debug/pprof/heap", ""); status != want {
			t.Errorf("%s: %d", listener, status)
		}
	}
	_, _, args := watchedServers(t, "hash")
	if status, _ := send(t, http.MethodGet, args[1]+"/debug/pprof/heap", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
}
