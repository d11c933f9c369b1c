package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/yamldoc"
)

// check validates keys in combination. Each key on its own is already validated.
func (d *decoder) check(c *Config) {
	d.setRegionsListener(c)
	d.checkListeners(&c.Listen)
	d.checkCallers(c)
	d.checkAdmin(c)
	d.pair("listen.tls.cert_file", c.Listen.TLS.CertFile, "listen.tls.key_file", c.Listen.TLS.KeyFile)
	d.authorities("listen.tls.client_ca_file", c.Listen.TLS.ClientCAFile)
	d.badIf(d.written["listen.tls.client_ca_file"] != nil && d.written["listen.tls.cert_file"] == nil, "listen.tls.client_ca_file",
		"requires client certificates, which needs TLS: write cert_file and key_file, too")
	d.checkStore(c)
	d.checkRedis(&c.Redis)
	d.checkRules(c)
	d.checkRegions(c)
	d.checkTrust(&c.Identity)
	d.checkTokens(&c.Identity)
	d.checkAdminTokens(&c.AdminJWT)
	if c.SecretFile != "" {
		d.checkSecret("secret_file", c.SecretFile, 16)
	}
	if d.Report.Count() == 0 {
		d.checkIdentity(c.Identity)
		d.checkAdminKeys(c.AdminJWT.JWT)
	}
}

// badIf reports a problem with a key if wrong is true. The message is the key followed by problem.
func (d *decoder) badIf(wrong bool, key, problem string) {
	if wrong {
		d.Bad(d.at(key), "%s %s", key, problem)
	}
}

// pair reports a certificate and a private key that do not match, or of which only one is given.
func (d *decoder) pair(certKey, certFile, keyKey, keyFile string) {
	if isRegular(certFile) && isRegular(keyFile) {
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			d.Bad(d.at(certKey), "%s and %s do not match: %s", certKey, keyKey, strings.TrimPrefix(err.Error(), "tls: "))
		}
	}
	for _, keys := range [][2]string{{certKey, keyKey}, {keyKey, certKey}} {
		if d.written[keys[0]] != nil && d.written[keys[1]] == nil {
			d.Bad(d.at(keys[0]), "%s needs %s, too: a certificate and its key belong together", keys[0],
				keys[1][strings.LastIndexByte(keys[1], '.')+1:])
		}
	}
}

// authorities reports a file without certificates.
func (d *decoder) authorities(key, file string) {
	if !isRegular(file) {
		return
	}
	data, err := yamldoc.ReadFile(file, maxBytes)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
		d.Bad(d.at(key), "%s: no certificate in %s: must be PEM", key, file)
	}
}

func (d *decoder) checkListeners(l *Listen) {
	all := []struct{ key, address string }{
		{"listen.http", l.HTTP},
		{"listen.grpc", l.GRPC},
		{"listen.ops", l.Ops},
		{"listen.admin", l.Admin},
		{"listen.regions", l.Regions},
	}
	d.badIf(l.HTTP == "" && l.GRPC == "", "listen.http", "and listen.grpc are both off, so the server would decide nothing: turn one of them on")
	for i, one := range all {
		for _, other := range all[:i] {
			if !collide(one.address, other.address) {
				continue
			}
			at, than := one, other
			if d.written[one.key] == nil {
				at, than = other, one
			}
			by := ""
			if d.written[than.key] == nil {
				by = " by default"
			}
			d.Bad(d.at(at.key), "%s is %s and %s is %s%s: give each a port of its own, or turn one off", at.key, at.address,
				than.key, than.address, by)
		}
	}
}

// collide reports whether two listeners cannot run at the same time. Port 0 selects any free port.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || isUnspecified(hostA) || isUnspecified(hostB)
}

func isUnspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// checkCallers prevents the data plane from being open to a network by accident.
func (d *decoder) checkCallers(c *Config) {
	tokens, certificates := d.written["listen.tokens_file"] != nil, d.written["listen.tls.client_ca_file"] != nil
	d.badIf(len(c.Callers.Names) > 0 && !certificates, "listen.tls.client_names",
		"needs client_ca_file, too, with the authorities that sign the certificates of callers")
	d.badIf(d.written["listen.tls.client_names"] != nil && len(c.Callers.Names) == 0, "listen.tls.client_names",
		"is empty: write names, or remove the key to accept every certificate")
	d.badIf(c.Callers.Open && (tokens || certificates), "listen.open",
		"allows all callers, and listen.tokens_file or listen.tls.client_ca_file restricts them: keep one of them")
	if c.Callers.Open || tokens || certificates {
		return
	}
	for _, l := range []struct{ key, address, instead string }{
		{"listen.http", c.Listen.HTTP, Default().Listen.HTTP}, {"listen.grpc", c.Listen.GRPC, Default().Listen.GRPC},
	} {
		d.badIf(netaddr.IsReachable(l.address), l.key, "is reachable from other hosts, and any of them could exhaust "+
			"the limits of any client: write listen.tokens_file, or listen.tls with client_ca_file, or listen.open: true if only "+
			"your own services can reach it; or listen on "+l.instead)
	}
}

// checkAdmin prevents the admin API, which can lift any limit, from being open to a network.
func (d *decoder) checkAdmin(c *Config) {
	if !netaddr.IsReachable(c.Listen.Admin) {
		return
	}
	var needs []string
	if d.written["listen.tls.cert_file"] == nil && d.written["listen.tls.key_file"] == nil {
		needs = append(needs, "listen.tls with cert_file and key_file")
	}
	if d.written["admin.tokens_file"] == nil && !d.adminTokensGiven(&c.AdminJWT) {
		needs = append(needs, "admin.tokens_file or admin.jwt")
	}
	d.badIf(len(needs) > 0, "listen.admin", "is reachable from other hosts, and any of them could lift any limit: write "+
		strings.Join(needs, ", and ")+", or listen on 127.0.0.1:8083")
}

// checkStore reports keys that the selected store does not use: the config says two different things.
func (d *decoder) checkStore(c *Config) {
	for _, s := range settings {
		d.badIf(d.written[s.key] != nil && c.unused(s.key), s.key, "is given, but store is "+string(c.Store)+", which does not use it: remove one of them")
	}
}

func (d *decoder) checkRedis(r *Redis) {
	d.pair("redis.tls.cert_file", r.TLS.CertFile, "redis.tls.key_file", r.TLS.KeyFile)
	d.authorities("redis.tls.ca_file", r.TLS.CAFile)
	if strings.Contains(r.Address, "@") {
		for _, key := range []string{"redis.username", "redis.password_file"} {
			d.badIf(d.written[key] != nil, key, "is given, and redis.address has a user or password before its @: remove that from the "+
				"address")
		}
	}
	d.badIf(r.Username != "" && r.PasswordFile == "" && d.written["redis.password_file"] == nil, "redis.username", "needs password_file, too")
	given := r.TLS.CAFile+r.TLS.CertFile+r.TLS.KeyFile+r.TLS.ServerName != "" ||
		strings.HasPrefix(r.Address, "rediss://")
	d.badIf(d.written["redis.tls.enabled"] != nil && !r.TLS.Enabled && given, "redis.tls.enabled",
		"is false, but other keys of redis enable TLS: remove this key, or the others")
	r.TLS.Enabled = r.TLS.Enabled || given
}

// checkRules requires that the rules exist, unless last_good_file does: then the server starts with the rules in that file.
func (d *decoder) checkRules(c *Config) {
	n, other := d.written["rules"], d.written["postgres.address"]
	if n != nil && other != nil {
		d.Bad(n, "rules and postgres are mutually exclusive: keep one of them; headgate rules apply copies files to PostgreSQL")
		return
	}
	if n == nil {
		file := d.written["postgres.password_file"] != nil
		d.badIf(file && other == nil, "postgres.password_file", "needs postgres.address, too")
		d.badIf(file && redact.HasPassword(c.Postgres.Address), "postgres.password_file", "is given, and postgres.address has a password: "+
			"remove it from the address")
		if other != nil {
			return
		}
		if _, found := d.root.Get("rules"); d.root.Kind == yamldoc.Mapping && !found {
			d.BadAt(1, 1, "rules: required: write "+writeRules+", or postgres.address")
		}
		return
	}
	if c.LastGoodFile != "" {
		for _, path := range c.Rules {
			if c.LastGoodFile == path || filepath.Dir(c.LastGoodFile) == path {
				d.Bad(d.at("last_good_file"), "last_good_file: %s is in a directory of rules, and would be loaded as a rule file: write another path", c.LastGoodFile)
			}
		}
		if _, err := os.Stat(c.LastGoodFile); err == nil {
			return
		}
	}
	d.each(n, "rules", func(n *yamldoc.Node, s string) {
		if _, err := os.Stat(d.path(s)); err != nil {
			d.Bad(n, "rules: %s not found: create it, or correct the path (%v)", d.path(s), cause(err))
		}
	})
}

func (d *decoder) checkTrust(i *Identity) {
	if i.TrustedHops > 0 && len(i.TrustedProxies) > 0 {
		d.Bad(d.at("identity.trusted_hops"), "identity.trusted_proxies and identity.trusted_hops are mutually "+
			"exclusive: keep one of them")
	}
	accepted := d.tokensGiven(i)
	for key, sources := range map[string][]string{
		"identity.user": i.User, "identity.service_account": i.ServiceAccount, "identity.tenant": i.Tenant,
		"identity.tier": i.Tier, "identity.region": i.Region,
	} {
		for _, source := range sources {
			d.badIf(strings.HasPrefix(source, "claim.") && !accepted, key,
				"cannot come from "+yamldoc.Shorten(source)+": no tokens are accepted: configure identity.jwt")
		}
	}
}

// checkSecret requires a secret that cannot be guessed. Unreadable files are already reported.
func (d *decoder) checkSecret(key, path string, minimum int) {
	if !isRegular(path) {
		return
	}
	secret, err := ReadSecret(path)
	if err == nil && len(secret) < minimum {
		d.Bad(d.at(key), "%s: the secret in %s has %d bytes and can be guessed: use %d or more, from openssl rand -hex 32", key,
			path, len(secret), minimum)
	}
}

// ReadSecret reads a file without its trailing newline, which editors add. It returns nil for no file, and an error for an
// empty file.
func ReadSecret(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file) //nolint:gosec // G304: the operator configures the path of the secret
	if data = bytes.TrimRight(data, "\r\n"); err == nil && len(data) == 0 {
		err = fmt.Errorf("%s is empty", file)
	}
	return data, err
}

// checkIdentity checks that package identity accepts the options, of which it may validate more than this package. It skips
// options with a key URL, from which identity.New would fetch the keys.
func (d *decoder) checkIdentity(i Identity) {
	for _, file := range []string{i.JWT.KeyFile, i.JWTSecretFile} {
		if i.JWT.KeyURL != "" || file != "" && !isRegular(file) {
			return
		}
	}
	var err error
	if i.JWT.Secret, err = ReadSecret(i.JWTSecretFile); err != nil {
		return // already reported
	}
	i.Log = slog.New(slog.DiscardHandler)
	resolver, err := identity.New(i.Options)
	if err != nil {
		problem := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "identity: "), "JWT: ")
		key := "identity"
		if i.JWT.KeyFile != "" {
			key = "identity.jwt.key_file"
		}
		d.Bad(d.at(key), "%s: %s", key, problem)
		return
	}
	resolver.Close()
}
