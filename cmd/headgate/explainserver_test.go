package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/ruledoc"
)

// adminServer returns the admin API of a server with this store, and a file with a valid token.
func adminServer(t *testing.T, store headgate.Store, o adminapi.Options) (handler http.Handler, token string) {
	t.Helper()
	document, err := ruledoc.Load("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	limiter := headgate.NewLimiter(store, document.Rules, headgate.Options{})
	if err := document.Apply(limiter); err != nil {
		t.Fatal(err)
	}
	made := startJSON[tokenReport](t, 0, "token", "create", "ann")
	o.Log = slog.New(slog.DiscardHandler)
	if o.Tokens, err = adminapi.ReadTokens(secretFile(t, made.Line), o.Log); err != nil {
		t.Fatal(err)
	}
	o.RulesFrom = []string{"testdata/rules.yaml"}
	return adminapi.New(limiter, o), secretFile(t, made.Token)
}

func newHTTPServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// TestExplainServerMemory explains a request on a server without Redis.
func TestExplainServerMemory(t *testing.T) {
	t.Parallel()
	clock := func() time.Time { return time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC) }
	handler, token := adminServer(t, memstore.New(memstore.Options{Clock: clock}), adminapi.Options{})
	server := newHTTPServer(t, handler)
	address := server.Listener.Addr().String()
	args := []string{
		"explain", "--server", address, "--token-file", token, "--cost", "3", "GET", "/api/v1//search/x",
		"api_key=k-12345", "tenant=acme", "user=ann",
	}
	o := start(t, args...)
	want := `allowed: within 3 limits

  request   GET /api/v1/search/x api_key=sha256:8BgO_c44N2VRnyi8HNtnmG tenant=acme user=ann, cost 3
  server    http://ADDRESS
  rules     testdata/rules.yaml, version XXXXXXXXXXXX
  counters  in the server's memory, at 2026-11-15T12:00:00Z by its clock

Limits that apply
  RULE                       LIMIT                   COUNTED BY                             USED                 RESET  VERDICT
  search-by-key              1000/minute, burst 200  api_key=sha256:8BgO_c44N2VRnyi8HNtnmG  0 of 200, cost 3            allowed
  search-by-key (candidate)  1000/minute, burst 50   api_key=sha256:8BgO_c44N2VRnyi8HNtnmG  0 of 50, cost 3             allowed (candidate)
  everything                 50000/minute            all requests                           0 of 50,000, cost 3         allowed

Notes
  path /api/v1//search/x normalized to /api/v1/search/x
  api_key hashed to sha256:8BgO_c44N2VRnyi8HNtnmG
  an upstream may interpret the path as /api/v1//search/x: rules that match any interpretation apply

Rules that do not apply
  login-by-ip  method is GET, not POST
  old-apps     when does not hold: user_agent.startsWith("legacy/") && region != "eu"
  exports      path is /api/v1/search/x, not /reports/{id}
  partners     path is /api/v1/search/x, not /partners/**
  mail         path is /api/v1/search/x, not /mail
`
	got := rulesVersion.ReplaceAllString(strings.ReplaceAll(o.out, address, "ADDRESS"), "version XXXXXXXXXXXX")
	if o.code != 0 || got != want {
		t.Errorf("exit %d %s\n%s\nwant\n%s", o.code, o.errors, got, want)
	}
	e := startJSON[explainReport](t, 0, args...)
	if e.Server != "http://"+address || len(e.Notes) != 3 || e.Cost != 3 || e.Limits[0].Algorithm != "token_bucket" {
		t.Errorf("%+v", e)
	}
}

// TestExplainServerMatchesLocal checks that --server and --rules with --redis print the same explanation.
func TestExplainServerMatchesLocal(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	address := "redis://" + redis.Addr()
	store, err := redisstore.New(redisstore.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	charge(t, redisstore.Options{Address: address}, "", 12,
		headgate.Attributes{"method": "POST", "path": "/api/v1/login", "ip": "192.0.2.1"})
	charge(t, redisstore.Options{Address: address}, "", 2,
		headgate.Attributes{"method": "POST", "path": "/mail", "user": "ann", "user_agent": "legacy/1"})
	handler, token := adminServer(t, store, adminapi.Options{Redis: address, Key: store.Key})
	server := newHTTPServer(t, handler)
	varies := regexp.MustCompile(`\d+ free in the queue|\d+ of [\d,]+|in \d+ s|\d+ s\b|[\d.]+m?s\b|at 20\S+`)
	same := func(text string) string { return strings.Join(strings.Fields(varies.ReplaceAllString(text, " ")), " ") }
	for _, request := range []string{
		"POST /api/v1//login ip=192.0.2.1",
		"POST /mail user=ann user_agent=legacy/1",
		"GET /partners/x ip=203.0.113.7",
		"GET /reports/7 tenant=acme user=ann header.x-rows=30",
		"GET /x ip=10.1.2.3 region=eu claim.x=y",
		"",
	} {
		args := strings.Fields(request)
		local := start(t, append([]string{"explain", "--rules", "testdata/rules.yaml", "--redis", address}, args...)...)
		remote := start(t, append([]string{"explain", "--server", server.URL, "--token-file", token}, args...)...)
		before, after, ok := strings.Cut(remote.out, "\n  server    "+server.URL)
		if !ok || local.code != remote.code || same(before+after) != same(local.out) {
			t.Errorf("%s\nlocal %+v\nremote %+v", request, local, remote)
		}
	}
	redis.Kill()
	o := start(t, "explain", "--server", server.URL, "--token-file", token, "/")
	if o.code != 2 || !strings.HasPrefix(o.errors, "headgate: "+server.URL+": "+address+": ") {
		t.Errorf("%+v", o)
	}
}

// TestExplainServerTLS connects to a server whose certificate is signed by a private CA.
func TestExplainServerTLS(t *testing.T) {
	t.Parallel()
	handler, token := adminServer(t, memstore.New(memstore.Options{}), adminapi.Options{})
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // discards the errors of expected handshake failures
	server.StartTLS()
	t.Cleanup(server.Close)
	certificate := pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	authority := secretFile(t, string(pem.EncodeToMemory(&certificate)))
	host := server.Listener.Addr().String()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--server", server.URL, "--ca-file", authority}, ""},
		{
			[]string{"--server", server.URL},
			server.URL + ": the certificate is signed by an unknown CA: give its certificate with --ca-file FILE",
		},
		{[]string{"--server", host}, "http://" + host + ": the server requires TLS: write " + server.URL},
		{[]string{"--server", server.URL, "--ca-file", token}, token + ": no PEM certificate found"},
	} {
		o := start(t, append(append([]string{"explain"}, c.args...), "--token-file", token, "GET", "/")...)
		if c.want != "" && (o.code != 2 || o.errors != "headgate: "+c.want+"\n") || c.want == "" && o.code != 0 {
			t.Errorf("%v: %+v", c.args, o)
		}
	}
}

// TestExplainServerErrors checks the error messages of all connection problems.
func TestExplainServerErrors(t *testing.T) {
	t.Parallel()
	handler, token := adminServer(t, memstore.New(memstore.Options{}), adminapi.Options{})
	ours := newHTTPServer(t, handler).URL
	responds := func(status int, contentType, body string) string {
		return newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Location", ours+r.URL.Path)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})).URL
	}
	closed := httptest.NewServer(handler)
	closed.Close()
	const (
		notHeadgate = "SERVER: not headgate's admin API: write the address of listen.admin in the server's " +
			"config, by default http://127.0.0.1:8083"
		noAddress   = "--server or VARIABLE: invalid URL: write http://127.0.0.1:8083 or https://host:8083"
		unreachable = "SERVER: connection refused: check that headgate serve runs there and that this is listen.admin in its config"
		none        = "SERVER: token required: give --token-file FILE or set HEADGATE_TOKEN; headgate token create NAME makes a token"
		unknown     = "SERVER: unknown token in TOKENFILE: add its line to the server's " +
			"admin.tokens_file; headgate token create NAME makes a token and its line"
		inClear = "SERVER: would send the token unencrypted to another machine: write https://192.0.2.1:8083"
		problem = "application/problem+json"
	)
	for _, c := range []struct{ server, token, want string }{
		{closed.URL, token, unreachable},
		{ours, "", none},
		{ours, secretFile(t, "hgt_wrong"), unknown},
		{ours + "/x", token, notHeadgate},
		{responds(200, "text/html", "<html>"), token, notHeadgate},
		{responds(200, "application/json", "{}"), token, notHeadgate},
		{responds(500, "text/plain", "oh"), token, notHeadgate},
		{responds(307, "text/plain", ""), token, notHeadgate},
		{responds(404, problem, `{"detail": "no"}`), token, notHeadgate},
		{responds(401, "text/plain", ""), token, notHeadgate},
		{responds(429, problem, `{"detail": "too many wrong tokens"}`), token, "SERVER: too many wrong tokens"},
		{
			responds(200, "application/json", `{"version": 2}`), token,
			"SERVER: report version 2 is newer than this headgate: install a newer headgate",
		},
		{strings.Replace(ours, "http:", "https:", 1), token, "SERVER: the server does not use TLS: write " + ours},
		{"http://192.0.2.1:8083", token, inClear},
		{"ftp://h", token, noAddress},
		{"http://u:" + password + "@h", token, noAddress},
		{ours, secretFile(t, "hgt_a\nhgt_b"), "TOKENFILE: not a single token: keep only the word that begins with hgt_"},
		{ours, secretFile(t, ""), "TOKENFILE is empty"},
		{ours, filepath.Join(t.TempDir(), "none"), "open TOKENFILE: no such file or directory"},
	} {
		args := []string{"explain", "--server", c.server, "GET", "/"}
		if c.token != "" {
			args = append(args, "--token-file", c.token)
		}
		o := start(t, args...)
		want := strings.ReplaceAll(strings.ReplaceAll(c.want, "SERVER", c.server), "TOKENFILE", c.token)
		want = strings.ReplaceAll(want, "VARIABLE", adminclient.ServerVariable)
		if o.code != 2 || o.out != "" || o.errors != "headgate: "+want+"\n" {
			t.Errorf("%s: exit %d\n%s\nwant\n%s", c.server, o.code, o.errors, want)
		}
	}
}

// TestExplainServerTimeout checks that an unresponsive server does not block the command.
func TestExplainServerTimeout(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = run(ctx, []string{"explain", "--server", silent.Addr().String()}, io.Discard)
	want := fmt.Sprintf("headgate: http://%s: no response within 5s: ", silent.Addr())
	if code, text := exitStatus(err); code != 2 || !strings.HasPrefix(text, want) {
		t.Errorf("%d %s", code, text)
	}
}

// TestExplainServerVariable cannot run in parallel because it changes the environment.
func TestExplainServerVariable(t *testing.T) {
	handler, file := adminServer(t, memstore.New(memstore.Options{}), adminapi.Options{})
	server := newHTTPServer(t, handler)
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HEADGATE_TOKEN", string(token))
	if o := start(t, "explain", "--server", server.URL); o.code != 0 {
		t.Errorf("%+v", o)
	}
	if o := start(t, "explain", "--server", server.URL, "--token-file", secretFile(t, "hgt_wrong")); o.code != 2 {
		t.Errorf("the variable takes precedence over the file: %+v", o)
	}
	t.Setenv("HEADGATE_TOKEN", "hgt_wrong")
	o := start(t, "explain", "--server", server.URL)
	if o.code != 2 || !strings.Contains(o.errors, "token in HEADGATE_TOKEN") {
		t.Errorf("%+v", o)
	}
}

func TestTokenCreate(t *testing.T) {
	t.Parallel()
	o := start(t, "token", "create", "ann")
	want := regexp.MustCompile(`^Token for ann \(not shown again\):\nhgt_\S{43}\n\n` +
		`Append this line to the file at admin\.tokens_file:\n[0-9a-f]{64} ann\n$`)
	if o.code != 0 || !want.MatchString(o.out) {
		t.Errorf("%+v", o)
	}
	r := startJSON[tokenReport](t, 0, "token", "create", "ann")
	if r.Name != "ann" || !strings.HasPrefix(r.Token, "hgt_") || !strings.HasSuffix(r.Line, " ann") {
		t.Errorf("%+v", r)
	}
}
