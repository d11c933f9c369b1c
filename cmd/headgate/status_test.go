package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/testenv"
)

// statusUnderLoad runs status for servers, with a window of 0.3 s in which traffic is sent to the first.
func statusUnderLoad(t *testing.T, code int, servers ...*testServer) statusReport {
	t.Helper()
	args := []string{"status", "--window", "300ms"}
	for _, s := range servers {
		args = append(args, "--ops", s.addressOf("ops"))
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
				servers[0].check(`"ip": "192.0.2.1"`)
			}
		}
	}()
	defer func() { close(done); <-stopped }()
	return startJSON[statusReport](t, code, args...)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	dir, file := configure(t, "redis: {address: \"redis://"+redis.Addr()+"\", deadline: 1s}\n", fivePerHour)
	s := serve(t, "--config", file)
	s.waitForLog(redisConnected)
	r := statusUnderLoad(t, 0, s)
	n := r.Nodes[0]
	if r.Status != statusOK || n.Status != statusOK || n.Version == "" || n.Uptime == nil || n.Rules == "" || n.RulesSource != "files" || n.Redis != "ok" || n.NodesSeen != 1 || len(n.Problems) > 0 {
		t.Errorf("%+v", r)
	}
	if n.DecisionsPerSecond == nil || *n.DecisionsPerSecond <= 0 || n.Denied == nil || *n.Denied <= 0 || *n.Denied > 1 || n.Local == nil || *n.Local != 0 || n.P99 == nil || *n.P99 <= 0 {
		t.Errorf("%+v", n)
	}
	if o := start(t, "status", "--ops", s.addressOf("ops"), "--window", "0s"); o.code != 0 || !strings.Contains(o.out, s.addressOf("ops")+"  ok ") {
		t.Errorf("%+v", o)
	}

	writeFile(t, filepath.Join(dir, "rules.yaml"), "rules: [{id: all}]\n")
	s.waitForLog("rules rejected")
	r = statusUnderLoad(t, 1, s)
	if n = r.Nodes[0]; n.Status != statusDegraded || len(n.Problems) != 1 || !strings.HasPrefix(n.Problems[0], "rules: ") {
		t.Errorf("%+v", n)
	}
	writeFile(t, filepath.Join(dir, "rules.yaml"), fivePerHour)
	s.waitForLog("rules recovered")

	redis.Kill()
	s.waitForLog("redis unavailable")
	eventually(t, "decisions without Redis", func() bool { return s.check(`"ip": "192.0.2.1"`).Path == "local" })
	r = statusUnderLoad(t, 1, s)
	if n = r.Nodes[0]; n.Redis != "unavailable" || n.Local == nil || *n.Local < 0.9 || !strings.Contains(strings.Join(n.Problems, "; "), "Redis is unavailable since ") {
		t.Errorf("%+v", n)
	}
}

// TestStatusOfSeveral asks two servers that share a Redis, with different rules, one of which is not named at first.
func TestStatusOfSeveral(t *testing.T) {
	t.Parallel()
	redis := "redis: {address: \"redis://" + testenv.Start(t, testenv.Redis).Addr() + "\", deadline: 1s}\n"
	_, file := configure(t, redis, fivePerHour)
	first := serve(t, "--config", file)
	_, file = configure(t, redis, "rules: [{id: all, by: [ip], limit: 6/hour}]\n")
	second := serve(t, "--config", file)
	first.waitForLog(redisConnected)
	second.waitForLog(redisConnected)
	eventually(t, "both servers know each other", func() bool {
		o := start(t, "status", "--window", "0s", "--ops", first.addressOf("ops"))
		return o.code == 0 && strings.Contains(o.out, "2 servers share this Redis, and 1 of them were asked")
	})
	r := statusUnderLoad(t, 1, first, second)
	if r.Status != statusDegraded || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "different rules") {
		t.Errorf("%+v", r)
	}
	o := start(t, "status", "--window", "0s", "--ops", first.addressOf("ops"), "--ops", "127.0.0.1:1")
	if o.code != 1 || !strings.Contains(o.out, "127.0.0.1:1      unreachable") && !strings.Contains(o.out, "unreachable") || !strings.Contains(o.out, "connection refused") {
		t.Errorf("%+v", o)
	}
}

// TestStatusUnreachable asks servers that do not answer, or not as a Headgate.
func TestStatusUnreachable(t *testing.T) {
	t.Parallel()
	if o := start(t, "status", "--ops", "127.0.0.1:1"); o.code != 2 || !strings.Contains(o.out, "unreachable") {
		t.Errorf("%+v", o)
	}
	other := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	if o := start(t, "status", "--ops", other.URL); o.code != 2 || !strings.Contains(o.out, "is not that of a Headgate server") {
		t.Errorf("%+v", o)
	}
	const build = "headgate_build_info{version=\"v\x1b[2J\"} 1\n"
	for name, c := range map[string]struct {
		code              int // of /readyz
		readyz, metrics   string
		exit              int
		contains, missing string
	}{
		"another service":    {200, `{"status": "ok"}`, "go_goroutines 1\n", 2, "unknown\n\n", "ok"},
		"an unknown status":  {200, `{"status": "UP"}`, build, 2, "/readyz is not that of a Headgate server", "UP\n"},
		"a contradiction":    {503, `{"status": "ok", "rules": {"version": "abc"}}`, build, 1, "with HTTP status 503", "  ok "},
		"missing fields":     {200, `{"status": "ok", "redis": {}}`, build, 0, "unknown, files  unknown", "memory"},
		"control characters": {200, `{"status": "degraded", "rules": {"version": "a\u001b[2Jb", "problem": "one\ntwo\u009b"}}`, build, 1, `rules: one\ntwo\u009b`, "\x1b"},
	} {
		other := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := c.metrics
			if r.URL.Path == "/readyz" {
				text = c.readyz
				w.WriteHeader(c.code)
			}
			_, _ = w.Write([]byte(text))
		}))
		if o := start(t, "status", "--window", "0s", "--ops", other.URL); o.code != c.exit || !strings.Contains(o.out, c.contains) || strings.Contains(o.out, c.missing) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	partial := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(`{"status": "ok", "rules": {"version": "abc"}}`))
	}))
	if o := start(t, "status", "--ops", partial.URL); o.code != 1 || !strings.Contains(o.out, "metrics are not available: ") || !strings.Contains(o.out, "  abc, unknown  unknown  –") {
		t.Errorf("%+v", o)
	}
}

func TestStatusControlPlane(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	o.do(0, "", "rules", "apply", o.file("rules.yaml", operatedRules), "--yes")
	eventually(t, "the node runs the rules", func() bool { return start(t, append([]string{"nodes"}, o.args...)...).code == 0 })
	r := operateJSON[statusReport](o, 0, "status", "--window", "0s", "--ops", o.addressOf("ops"))
	if r.Nodes[0].RulesSource != "PostgreSQL" || r.ControlPlane == nil || len(r.ControlPlane.Nodes) != 1 || r.ControlPlane.RulesVersion != 1 || len(r.Notes) > 0 {
		t.Errorf("%+v", r)
	}
	if got := start(t, "status", "--window", "0s", "--ops", o.addressOf("ops"), "--server", "http://127.0.0.1:1"); got.code != 0 || !strings.Contains(got.out, "note: the admin API did not list the servers: ") {
		t.Errorf("%+v", got)
	}
}

// TestStatusOfFiles checks that a server with rules in files is not asked for a control plane.
func TestStatusOfFiles(t *testing.T) {
	t.Parallel()
	_, file := configure(t, "", watchedRules)
	s := serve(t, "--dev", "--config", file)
	r := startJSON[statusReport](t, 0, "status", "--window", "0s", "--ops", s.addressOf("ops"), "--server", s.addressOf("admin"))
	if len(r.Notes) > 0 || r.ControlPlane != nil || r.Nodes[0].Redis != "memory" {
		t.Errorf("%+v", r)
	}
}

func TestStatusText(t *testing.T) {
	t.Parallel()
	number := func(n float64) *float64 { return &n }
	r := statusReport{Notes: []string{"a note"}, Nodes: []nodeStatus{
		{
			Address: "10.0.0.1:8082", Status: "degraded", Version: "v0.1.0", Uptime: number(3 * time.Hour.Seconds()), Rules: "4937b2ec08ae", RulesSource: "files", Redis: "ok",
			ShardsUnavailable: 1, DecisionsPerSecond: number(1204), Denied: number(0.031), Local: number(0.5), P99: number(0.0008), Problems: []string{"a problem"},
		},
		{Address: "10.0.0.2:8082", Status: "ok", Rules: "4937b2ec08ae", RulesSource: "PostgreSQL", Redis: "ok", P99: number(0.01), P99SinceStart: true},
	}}
	const want = `SERVER         STATUS    VERSION  UPTIME  RULES                     REDIS           DECISIONS/S  DENIED  LOCAL   P99
10.0.0.1:8082  degraded  v0.1.0   3h0m0s  4937b2ec08ae, files       1 circuit open  1204.0       3.1 %   50.0 %  0.8 ms
10.0.0.2:8082  ok        –        –       4937b2ec08ae, PostgreSQL  ok              –            –       –       10 ms*
* since the server's start, because there were few decisions

10.0.0.1:8082: a problem

note: a note
`
	if got := r.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestControlCharacters checks that texts of a server cannot control the terminal, in reports and in errors.
func TestControlCharacters(t *testing.T) {
	t.Parallel()
	evil := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == adminapi.NodesPath {
			_, _ = w.Write([]byte(`{"nodes": [{"node": "a\u001b[2J\nb", "problem": "\u009b\u202e"}]}`))
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"detail": "evil \u001b[2J"}`))
	}))
	for _, c := range [][]string{{`a\x1b[2J\nb`, "nodes"}, {`\u009b\u202e`, "nodes"}, {`evil \x1b[2J`, "top", "--once"}, {`evil \x1b[2J`, "denials"}, {`evil \x1b[2J`, "explain", "/"}} {
		o := start(t, append(c[1:], "--server", evil.URL)...)
		if !strings.Contains(o.out+o.errors, c[0]) || strings.ContainsAny(o.out+o.errors, "\x1b\u009b\u202e") {
			t.Errorf("%q: %+v", c, o)
		}
	}
}
