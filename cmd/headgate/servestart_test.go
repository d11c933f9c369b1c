package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// serveFails runs serve and checks that the server does not start.
func serveFails(t *testing.T, args ...string) outcome {
	t.Helper()
	var out strings.Builder
	var log serverLog
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	code, text := exitStatus((&program{out: &out, log: &log}).run(ctx, append([]string{"serve"}, args...)))
	if ctx.Err() != nil {
		t.Fatalf("the server started:\n%s", log.String())
	}
	return outcome{code, out.String(), text}
}

func TestServeRejectsInvalidSetup(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	port := taken.Addr().String()
	write := func(config, rules string) string {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "rules.yaml"), rules)
		writeFile(t, filepath.Join(dir, "config.yaml"), config)
		return filepath.Join(dir, "config.yaml")
	}
	bad := "listen: {admin: \":8083\"}\nrules: rules.yaml\n"
	onPort := "listen: {http: \"" + port + "\", grpc: off, ops: off, admin: off}\nrules: rules.yaml\n"
	for _, c := range []struct {
		name        string
		code        int
		out, errors string
		args        []string
	}{
		{"no config", 2, "", "no config given: use --config FILE, or --dev to try the server without one\nsee headgate serve --help\n", nil},
		{"no file", 2, "", "no such file", []string{"--config", "testdata/nowhere.yaml"}},
		{"log level", 2, "", "--log-level loud: must be one of debug, info, warn, error", []string{"--dev", "--log-level", "loud"}},
		{"open admin", 1, "1 problem\n", "", []string{"--config", write(bad, fivePerHour)}},
		{"open admin, dev", 1, "could lift any limit", "", []string{"--dev", "--config", write(bad, fivePerHour)}},
		{
			"port taken", 2, "", "headgate: listen.http: " + port + " is in use by another program: stop it, or write another port\n",
			[]string{"--config", write(onPort, fivePerHour)},
		},
		{"port taken, dev", 2, "", "listen.http: " + port + " is in use", []string{"--dev", "--config", write(onPort, fivePerHour)}},
		{
			"bad rules", 1, "1 problem in 1 file\n", "no rules to start with: correct the files; with last_good_file set",
			[]string{"--config", write(anyPorts+"rules: rules.yaml\n", "rules: 7\n")},
		},
		{
			"tokens", 2, "", "admin.tokens_file: ",
			[]string{"--config", write(anyPorts+"rules: rules.yaml\nadmin: {tokens_file: rules.yaml}\n", fivePerHour)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := serveFails(t, c.args...)
			if o.code != c.code || !strings.Contains(o.out, c.out) || !strings.Contains(o.errors, c.errors) ||
				(c.out == "") != (o.out == "") || c.errors == "" != (o.errors == "") {
				t.Errorf("exit %d\nstandard output: %s\nstandard error: %s", o.code, o.out, o.errors)
			}
		})
	}
}

// TestServeDocumented runs the config of docs/config.md, with other paths and ports, against a Redis with a password. The admin API
// is off because the config names no tokens.
func TestServeDocumented(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(docs), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	redis := testenv.Start(t, testenv.Redis)
	redis.Must(t, "CONFIG", "SET", "requirepass", "geheim")
	dir := t.TempDir()
	for _, change := range [][2]string{
		{"127.0.0.1:8080", "127.0.0.1:0"},
		{"127.0.0.1:8081", "127.0.0.1:0"},
		{"127.0.0.1:8082", "127.0.0.1:0"},
		{"127.0.0.1:8083", "127.0.0.1:0"},
		{"127.0.0.1:6379", redis.Addr()},
		{"/run/secrets/redis", filepath.Join(dir, "password")},
		{"/etc/headgate/rules/", dir},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("%s is missing in\n%s", change[0], text)
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	writeFile(t, filepath.Join(dir, "password"), "geheim\n")
	writeFile(t, filepath.Join(dir, "rules.yaml"), fivePerHour)
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, text)
	r := serve(t, "--config", file)
	r.waitForLog(redisConnected)
	if a := r.checkStored(); a.Remaining != 4 {
		t.Errorf("%+v", a)
	}
	r.waitForLog("the admin API is off")
	if _, up := r.log.find(func(l logLine) bool { return l.Listener == "admin" }); up {
		t.Error("the admin API is up without tokens")
	}
	if strings.Contains(r.log.String(), "geheim") {
		t.Error("the password is in the log")
	}
}

// TestServeTLS checks that all listeners except ops require a client certificate, that the admin API also requires a token, and that
// the server presents its certificate to Redis.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	ours := testenv.NewCertificate(t, nil, &x509.Certificate{})
	writeFile(t, in("cert"), ours.CertPEM)
	writeFile(t, in("key"), ours.KeyPEM)
	redis := testenv.Start(t, testenv.Redis)
	port := freePort(t)
	redis.Must(t, "CONFIG", "SET", "tls-cert-file", in("cert"), "tls-key-file", in("key"), "tls-ca-cert-file", in("cert"),
		"tls-auth-clients", "yes", "tls-port", port)
	redis.Must(t, "ACL", "SETUSER", "gate", "on", ">geheim", "~*", "&*", "+@all")
	writeFile(t, in("password"), "geheim")
	writeFile(t, in("secret"), "0123456789abcdef")
	writeFile(t, in("rules.yaml"), fivePerHour)
	token, line, err := adminapi.NewToken("ann")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, in("tokens"), line+"\n")
	writeFile(t, in("config.yaml"), `
listen:
  {http: 127.0.0.1:0, grpc: 127.0.0.1:0, ops: 127.0.0.1:0, admin: 127.0.0.1:0, allow_refunds: http,
  tls: {cert_file: cert, key_file: key, client_ca_file: cert}}
redis:
  {address: "rediss://127.0.0.1:`+port+`", username: gate, password_file: password,
  tls: {ca_file: cert, cert_file: cert, key_file: key}}
rules: rules.yaml
identity: {jwt: {algorithms: ES256, key_file: cert}}
secret_file: secret
admin: {tokens_file: tokens}
`)
	r := serve(t, "--config", in("config.yaml"))
	r.waitForLog(redisConnected)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.Pool, Certificates: []tls.Certificate{ours.Certificate}}}
	defer transport.CloseIdleConnections()
	post := func(listener, path, token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+r.addressOf(listener)+path,
			strings.NewReader(`{"attributes": {"ip": "192.0.2.1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for _, c := range []struct {
		listener, path, token string
		want                  int
	}{
		{"http", "/v1/check", "", http.StatusOK},
		{"http", "/v1/refund", "", http.StatusOK},
		{"admin", "/v1/explain", "", http.StatusUnauthorized},
		{"admin", "/v1/explain", token, http.StatusOK},
	} {
		what := fmt.Sprintf("%d from %s", c.want, c.path)
		eventually(t, what, func() bool { return post(c.listener, c.path, c.token) == c.want }) // Redis may respond late
	}
	writeFile(t, in("token"), token)
	explain := []string{"explain", "--server", "https://" + r.addressOf("admin"), "--token-file", in("token"), "--ca-file", in("cert"), "ip=192.0.2.1"}
	if o := start(t, append(explain, "--cert-file", in("cert"), "--key-file", in("key"))...); o.code != 0 {
		t.Errorf("a command with a certificate: exit %d: %s%s", o.code, o.out, o.errors)
	}
	if o := start(t, append(explain, "--cert-file", in("cert"), "--key-file", in("token"))...); !strings.Contains(o.errors, "--key-file") {
		t.Errorf("a command with a key that does not fit: exit %d: %s%s", o.code, o.out, o.errors)
	}
	conn, err := grpc.NewClient(r.addressOf("grpc"), grpc.WithTransportCredentials(credentials.NewTLS(transport.TLSClientConfig.Clone())))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "a response over gRPC", func() bool {
		d, err := checkv1.NewCheckServiceClient(conn).Check(t.Context(), &checkv1.CheckRequest{})
		return err == nil && d.GetPath() == "store"
	})
	if status, health := r.ready(); status != http.StatusOK || health.Status != "ok" {
		t.Errorf("%d: %+v", status, health)
	}
	if o := start(t, explain...); o.code != 2 {
		t.Errorf("a command without a certificate: exit %d: %s%s", o.code, o.out, o.errors)
	}
}

// freePort returns a port that is free now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// TestDevConfig checks that --dev without a config uses the example rule and listens on the loopback interface only.
func TestDevConfig(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Listen.Ops = ""
	c.Listen.TLS.CertFile = "cert"
	c.AdminTokensFile = "tokens"
	dev := devConfig(c)
	if dev.Listen != (config.Listen{HTTP: "127.0.0.1:8080", GRPC: "127.0.0.1:8081", Admin: "127.0.0.1:8083"}) ||
		dev.AdminTokensFile != "" || len(dev.Identity.TrustedProxies) != 2 || len(c.Identity.TrustedProxies) != 0 {
		t.Errorf("%+v", dev)
	}
	text := newDevReport(map[string]string{"http": "127.0.0.1:1"}, dev).text()
	for _, want := range []string{"one example, 5 requests per minute", "http   127.0.0.1:1", "grpc   off", "http://127.0.0.1:1/v1/check "} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
}
