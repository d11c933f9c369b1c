package doctor

import (
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testenv"
)

// expect checks that a check has a status, and a text in its detail or remedy.
func expect(t *testing.T, findings []Finding, check string, status Status, text string) {
	t.Helper()
	for _, f := range findings {
		if f.Check == check && f.Status == status && strings.Contains(f.Detail+" "+f.Remedy, text) {
			if (status == Problem || status == Warning) && f.Remedy == "" {
				t.Errorf("%+v has no remedy", f)
			}
			return
		}
	}
	t.Errorf("no %s of %s with %q in %+v", status, check, text, findings)
}

func TestListeners(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check  string
		status Status
		text   string
		change func(c *config.Config)
	}{
		{"http", OK, "only this host", func(*config.Config) {}},
		{"http", OK, "off", func(c *config.Config) { c.Listen.HTTP = "" }},
		{"http", Warning, "is open", func(c *config.Config) { c.Listen.HTTP, c.Callers.Open = ":8080", true }},
		{"grpc", Warning, "in the clear", func(c *config.Config) { c.Listen.GRPC, c.Callers.TokensFile = ":8081", "f" }},
		{"grpc", OK, "over TLS", func(c *config.Config) { c.Listen.GRPC, c.Callers.TokensFile, c.Listen.TLS.CertFile = ":8081", "f", "f" }},
		{"grpc", OK, "certificates", func(c *config.Config) { c.Listen.GRPC, c.Listen.TLS.ClientCAFile = ":8081", "f" }},
		{"grpc", Problem, "refund", func(c *config.Config) {
			c.Listen.GRPC, c.Callers.Open, c.Listen.AllowRefunds.GRPC = ":8081", true, true
		}},
		{"ops", OK, "Prometheus", func(c *config.Config) { c.Listen.Ops = ":8082" }},
		{"ops", Warning, "no metrics", func(c *config.Config) { c.Listen.Ops = "" }},
		{"admin", OK, "no tokens are configured", func(*config.Config) {}},
		{"admin", OK, "over TLS", func(c *config.Config) { c.Listen.Admin, c.AdminTokensFile = ":8083", "f" }},
		{"admin", OK, "only this host, with tokens", func(c *config.Config) { c.AdminTokensFile = "f" }},
	} {
		conf := config.Default()
		c.change(conf)
		expect(t, CheckListeners(conf), c.check, c.status, c.text)
	}
}

func TestCallerTokens(t *testing.T) {
	t.Parallel()
	conf := config.Default()
	conf.Callers.TokensFile = filepath.Join(t.TempDir(), "callers")
	for rights, want := range map[string]Status{"": Problem, "viewer": Problem, "admin": Problem, "caller": OK, "nonsense": Problem} {
		text := "# " + rights
		if rights != "" {
			text = strings.Repeat("0", 64) + " nginx " + rights
		}
		testenv.NoError(t, os.WriteFile(conf.Callers.TokensFile, []byte(text+"\n"), 0o600))
		got := OK
		for _, f := range CheckListeners(conf) {
			if f.Check == "listen.tokens_file" {
				got = f.Status
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", rights, got, want)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		proxies   string
		byAddress bool
		status    Status
		text      string
	}{
		{"", false, OK, "none"},
		{"", true, Warning, "all clients behind a gateway are one client"},
		{"10.0.0.0/8", true, OK, "10.0.0.0/8"},
		{"0.0.0.0/0", true, Problem, "any client can claim any address"},
		{"::/0", false, Problem, "any client can claim any address"},
		{"0.0.0.0/1", true, Warning, "wider"},
		{"2000::/3", true, Warning, "wider"},
		{"2001:db8::/32", true, OK, "2001:db8::/32"},
	} {
		conf := config.Default()
		if c.proxies != "" {
			conf.Identity.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(c.proxies)}
		}
		expect(t, CheckIdentity(conf, c.byAddress), "trusted_proxies", c.status, c.text)
	}
	conf := config.Default()
	conf.Identity.TrustedHops = 1
	expect(t, CheckIdentity(conf, true), "trusted_proxies", OK, "every peer")
	conf.Listen.HTTP, conf.Callers.Open = ":8080", true
	expect(t, CheckIdentity(conf, true), "trusted_proxies", Problem, "claim any address")
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		testenv.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
		testenv.NoError(t, os.Chmod(path, mode))
		return path
	}
	conf := config.Default()
	conf.Redis.PasswordFile, conf.AdminTokensFile = file("good", 0o640), file("tokens", 0o644)
	conf.Rules = []string{dir}
	now := time.Now()
	testenv.NoError(t, os.Chmod(dir, 0o700)) //nolint:gosec // a directory
	expect(t, CheckFiles(conf, file("config", 0o644), now), "permissions", OK, "")
	conf.Redis.PasswordFile = file("read", 0o644)
	expect(t, CheckFiles(conf, "", now), "redis.password_file", Warning, "chmod o-rwx "+conf.Redis.PasswordFile)
	conf.SecretFile = file("written", 0o602)
	expect(t, CheckFiles(conf, "", now), "secret_file", Problem, "changed by every user")
	conf.AdminTokensFile = file("open", 0o666)
	expect(t, CheckFiles(conf, "", now), "admin.tokens_file", Problem, "chmod o-w "+conf.AdminTokensFile)
	testenv.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // what the check is about
	expect(t, CheckFiles(conf, "", now), "rules", Problem, "who could lift any limit")
	conf.Redis.Address = "redis://:hunter2@127.0.0.1"
	expect(t, CheckFiles(conf, file("config", 0o644), now), "config", Warning, "read by every user")
	conf.LastGoodFile = filepath.Join(dir, "missing", "rules.json")
	expect(t, CheckFiles(conf, "", now), "last_good_file", Warning, "not writable")
	testenv.NoError(t, os.Chmod(dir, 0o700)) //nolint:gosec // a directory
	rule := file("other rules.yaml", 0o646)
	conf.LastGoodFile, conf.Identity.JWT.KeyFile, conf.AdminJWT.KeyFile = file("last", 0o666), file("keys", 0o666), file("admins", 0o666)
	for check, path := range map[string]string{"rules": rule, "last_good_file": conf.LastGoodFile, "identity.jwt.key_file": conf.Identity.JWT.KeyFile, "admin.jwt.key_file": conf.AdminJWT.KeyFile} {
		expect(t, CheckFiles(conf, "", now), check, Problem, path+" (mode 06")
	}
	expect(t, CheckFiles(conf, "", now), "rules", Problem, "chmod o-w '"+rule+"'")
	conf.Rules = nil
	testenv.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // what the check is about
	expect(t, CheckFiles(conf, "", now), "last_good_file", Problem, dir+" (mode 0777)")
	testenv.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky)) // as /tmp
	for _, f := range CheckFiles(conf, "", now) {
		if strings.HasPrefix(f.Detail, dir+" ") {
			t.Errorf("%+v", f)
		}
	}
	for _, f := range CheckFiles(conf, "", now) {
		if strings.Contains(f.Detail+f.Remedy, "hunter2") {
			t.Errorf("%+v shows the password", f)
		}
	}
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pair := testenv.NewCertificate(t, nil, &x509.Certificate{NotAfter: now.Add(20 * 24 * time.Hour)})
	conf, dir := config.Default(), t.TempDir()
	conf.Listen.TLS.CertFile, conf.Listen.TLS.KeyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	testenv.NoError(t, os.WriteFile(conf.Listen.TLS.CertFile, []byte(pair.CertPEM), 0o600))
	testenv.NoError(t, os.WriteFile(conf.Listen.TLS.KeyFile, []byte(pair.KeyPEM), 0o600))
	for later, status := range map[time.Duration]Status{0: OK, 10 * 24 * time.Hour: Warning, 18*24*time.Hour + time.Hour: Warning, 30 * 24 * time.Hour: Problem} {
		findings := CheckFiles(conf, "", now.Add(later))
		if status == OK {
			expect(t, findings, "permissions", OK, "")
			continue
		}
		expect(t, findings, "listen.tls.cert_file", status, "expire")
		if strings.Contains(findings[0].Detail, " 1 days") {
			t.Error(findings[0].Detail)
		}
	}
}

func TestOpenFiles(t *testing.T) {
	t.Parallel()
	conf := config.Default()
	expect(t, checkOpenFiles(conf, 1024), "open files", Warning, "LimitNOFILE=")
	expect(t, checkOpenFiles(conf, 65536), "open files", OK, "65,536")
	conf.Listen.GRPC = ""
	expect(t, checkOpenFiles(conf, 15000), "open files", OK, "")
	if _, ok := openFilesLimit(); !ok {
		t.Error("the limit of this process is unknown")
	}
}
