package main

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/ruledoc"
)

const password = "p4ss/w0rd@r3dis"

// charge sends requests through a limiter with the same counters as a server.
func charge(t *testing.T, o redisstore.Options, secret string, times int, attributes headgate.Attributes) {
	t.Helper()
	chargeBy(t, "testdata/rules.yaml", o, secret, times, attributes)
}

func chargeBy(t *testing.T, rules string, o redisstore.Options, secret string, times int, attributes headgate.Attributes) {
	t.Helper()
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	document, err := ruledoc.Load(rules)
	if err != nil {
		t.Fatal(err)
	}
	limiter := headgate.NewLimiter(store, document.Rules, headgate.Options{Secret: []byte(secret)})
	for range times {
		if d, _ := limiter.Check(t.Context(), headgate.Request{Attributes: attributes}); d.Path != headgate.PathStore {
			t.Fatal(d.Path)
		}
	}
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExplainRedis(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	address := "redis://" + server.Addr()
	login := headgate.Attributes{"method": "POST", "path": "/api/v1/login", "ip": "2001:db8::/64"}
	charge(t, redisstore.Options{Address: address}, "", 12, login)

	args := []string{
		"explain", "--rules", "testdata/rules.yaml", "--redis", address, "POST", "/api/v1/login/", "ip=2001:db8::5",
	}
	var first outcome
	for range 3 { // explain charges nothing
		first = start(t, args...)
		for tries := 0; strings.Contains(first.errors, "i/o timeout") && tries < 20; tries++ {
			first = start(t, args...) // a machine that stalls
		}
		want := regexp.MustCompile(`^429: denied by login-by-ip; retry after [1-6]?\d s\n(?s:.*)` +
			regexp.QuoteMeta(address) + `, at 20(?s:.*)\n  login-by-ip  10/minute, fixed_window  ip=2001:db8::/64  10 of 10` +
			` +in [1-6]?\d s +denied for [1-6]?\d s\n` +
			`  everything   50000/minute +all requests +\d+ of 50,000 +(in 1 s +)?allowed\n`)
		if first.code != 1 || !want.MatchString(first.out) {
			t.Fatalf("exit %d %s\n%s", first.code, first.errors, first.out)
		}
	}
	// The printed key and field locate the counter.
	where := regexp.MustCompile(`(hg2:headgate:\S+)  ([0-9a-f]{12})  login-by-ip`).FindStringSubmatch(first.out)
	if where == nil {
		t.Fatal(first.out)
	}
	field, _ := hex.DecodeString(where[2])
	if exists := server.Must(t, "HEXISTS", where[1], string(field)); exists != int64(1) {
		t.Errorf("no counter at %v", where)
	}

	e := startJSON[explainReport](t, 1, args...)
	l := e.Limits[0]
	if e.Redis != address || e.Time.IsZero() || *e.RetryAfter <= 0 || *e.RetryAfter > 60 || l.Used != 10 ||
		l.Remaining != 0 || l.Key != where[1] || l.Field != where[2] || l.ResetAfter != *l.RetryAfter {
		t.Errorf("%+v", e)
	}
	// Another namespace has separate counters.
	if o := start(t, append(args, "--redis-namespace", "other")...); o.code != 0 || !strings.Contains(o.out, "hg2:other:") {
		t.Errorf("%+v", o)
	}
}

func TestExplainShadowAndDelay(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	o := redisstore.Options{Address: "redis://" + server.Addr()}
	charge(t, o, "", 2, headgate.Attributes{"method": "POST", "path": "/mail", "user": "ann", "user_agent": "legacy/1"})
	got := start(t, "explain", "--rules", "testdata/rules.yaml", "--redis", server.Addr(), "POST", "/mail", "user=ann",
		"user_agent=legacy/1")
	want := regexp.MustCompile(`^allowed: within 3 limits; delayed by [\d.]+m?s; old-apps would deny \(shadow\)` +
		`(?s:.*)VERDICT\n  old-apps .* would deny for \d+ s \(shadow\)\n  mail .* \d free in the queue .* allowed after [\d.]+m?s\n`)
	if got.code != 0 || !want.MatchString(got.out) {
		t.Errorf("%+v", got)
	}
}

// TestExplainSecrets checks that the output contains none of the secrets.
func TestExplainSecrets(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	server.Must(t, "CONFIG", "SET", "requirepass", password)
	address := "redis://" + server.Addr()
	const secret, key, token = "subject-secret-99", "raw-key-0815-xyz", "token-7f6e5d" //nolint:gosec // G101: made up
	partner := headgate.Attributes{"path": "/partners/x", "api_key": headgate.HashKey(key)}
	charge(t, redisstore.Options{Address: address, Password: password}, secret, 40, partner) // most of a minute's limit

	found := regexp.MustCompile(`\n  partners +50/minute +api_key=sha256:\S+ +[1-9]\d* of 50`)
	common := []string{
		"explain", "--rules", "testdata/rules.yaml", "/partners/x", "api_key=" + key, "header.authorization=Bearer " + token,
	}
	withFile := []string{"--redis", address, "--redis-password-file", secretFile(t, password)}
	inAddress := []string{"--redis", "redis://default:p4ss%2Fw0rd%40r3dis@" + server.Addr()}
	withSecret := []string{"--secret-file", secretFile(t, secret)}
	for i, c := range []struct {
		code  int
		found bool
		flags []string
	}{
		{0, true, append(withFile, withSecret...)},
		{0, true, append(inAddress, withSecret...)},
		{0, false, withFile},
		{2, false, []string{"--redis", "redis://default:wrong-" + password + "@" + server.Addr()}},
		{2, false, []string{"--redis", "default:" + password + "@127.0.0.1:x"}},
		{2, false, []string{"--redis", address}},
		{2, false, []string{"--redis", "nonsense://u:" + password + "@h"}},
		{2, false, []string{"--redis", address, "--redis-password-file", secretFile(t, "")}},
	} {
		for _, output := range []string{"human", "json"} {
			o := start(t, append(append(append([]string{}, common...), c.flags...), "--output", output)...)
			if o.code != c.code {
				t.Errorf("%d: exit %d, want %d: %s", i, o.code, c.code, o.errors)
			}
			for _, s := range []string{password, "p4ss", secret, key, token} {
				if all := o.out + o.errors; strings.Contains(all, s) {
					t.Errorf("%d: a secret is shown:\n%s", i, all)
				}
			}
			if output == "human" && found.MatchString(o.out) != c.found {
				t.Errorf("%d: the counter is found: %t\n%s", i, !c.found, o.out)
			}
		}
	}
}

func TestExplainRedisUnavailable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	listener.Close()
	silent := testenv.Start(t, testenv.Redis)
	silent.Pause()
	t.Cleanup(silent.Resume)
	// The caller may cancel before explainTimeout.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err = run(ctx, []string{"explain", "--rules", "testdata/rules.yaml", "--redis", silent.Addr()}, io.Discard)
	if code, text := exitStatus(err); code != 2 || !strings.Contains(text, silent.Addr()) || time.Since(began) > time.Second {
		t.Errorf("after %s: %d %s", time.Since(began), code, text)
	}
	for _, address := range []string{closed, silent.Addr()} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			o := start(t, "explain", "--rules", "testdata/rules.yaml", "--redis", "redis://:hunter22@"+address, "GET", "/")
			if o.code != 2 || o.out != "" || !strings.Contains(o.errors, "redis://***@"+address) {
				t.Errorf("%+v", o)
			}
			if strings.Contains(o.errors, "hunter22") {
				t.Errorf("the password is shown: %s", o.errors)
			}
			if elapsed := time.Since(began); elapsed > 7*time.Second {
				t.Errorf("it took %s", elapsed)
			}
		})
	}
}

// TestUnusedAttributesAreNoted checks that attributes which rules use implicitly are not reported as unused.
func TestUnusedAttributesAreNoted(t *testing.T) {
	t.Parallel()
	q, err := parseRequest([]string{"user=ann", "service_account=ci", "tenant=acme", "tier=free"})
	if err != nil {
		t.Fatal(err)
	}
	q.compare(parse(t, "rules: [{id: r, by: [client], limit: 1/s}]\nexemptions: [{service_account: cron}]"))
	if len(q.notes) != 1 || q.notes[0] != "no rule uses tenant and tier" {
		t.Error(q.notes)
	}
}

func parse(t *testing.T, text string) *ruledoc.Document {
	t.Helper()
	d, err := ruledoc.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return d
}
