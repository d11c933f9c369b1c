package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/yamldoc"
	"github.com/headgate/headgate/redisstore"
)

// listener reads an address with a port, or off, for which it returns "".
func (d *decoder) listener(n *yamldoc.Node, key string) (string, bool) {
	if n.Kind == yamldoc.Number {
		d.Bad(n, "%s: %s is not an address: write \":%[2]s\" in quotes, or 127.0.0.1:%[2]s", key, n.Text)
		return "", false
	}
	if n.Kind == yamldoc.Boolean { // YAML 1.1 reads an unquoted off as false, and some tools write it like that
		d.Bad(n, "%s: %s is not an address with a port: write \":8080\", 127.0.0.1:8080 or off", key, n.Text)
		return "", false
	}
	s, ok := d.Text(n, key)
	if !ok || s == off {
		return "", ok
	}
	host, port, err := net.SplitHostPort(s)
	_, badPort := strconv.ParseUint(port, 10, 16)
	_, badHost := netip.ParseAddr(host)
	switch {
	case err != nil:
		d.Bad(n, "%s: %q is not an address with a port: write \":8080\", 127.0.0.1:8080 or off", key, yamldoc.Shorten(s))
	case badPort != nil:
		d.Bad(n, "%s: invalid port %q: must be 0 to 65535", key, yamldoc.Shorten(port))
	case badHost != nil && strings.Trim(host, headerLetters) != "":
		d.Bad(n, "%s: %q is neither an IP address nor a host name: write 127.0.0.1:%s", key,
			yamldoc.Shorten(host), port)
	default:
		return s, true
	}
	return "", false
}

// checkName describes the problem of a name to find in client certificates, or returns "".
func checkName(name string) string {
	if strings.ContainsAny(name, "* ") || strings.HasPrefix(name, "CN=") {
		return "invalid name: write a DNS name or a URI as in the certificate, gateway.example or spiffe://example/gateway"
	}
	return ""
}

func (d *decoder) allowRefunds(n *yamldoc.Node, key string, c *Config) {
	d.each(n, key, func(n *yamldoc.Node, s string) {
		switch s {
		case "http":
			c.Listen.AllowRefunds.HTTP = true
		case "grpc":
			c.Listen.AllowRefunds.GRPC = true
		default:
			d.Bad(n, "%s: %q is not a listener that accepts refunds: write one or both of http, grpc", key, yamldoc.Shorten(s))
		}
	})
}

// checkRedis validates the options with package redisstore, whose errors begin with the name of the key.
func checkRedis(o redisstore.Options) string {
	if err := o.Validate(); err != nil {
		return "redis." + err.Error()
	}
	return ""
}

func checkRedisAddress(_, s string) string { return checkRedis(redisstore.Options{Address: s}) }

func checkNamespace(_, s string) string {
	return checkRedis(redisstore.Options{Address: Default().Redis.Address, Namespace: s})
}

func checkPostgresAddress(key, s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return key + ": not a PostgreSQL URL: write postgres://host:5432/headgate"
	}
	return ""
}

// checkCollector validates the URL of an OTLP/HTTP collector.
func checkCollector(key, s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "":
		return key + ": not the URL of an OTLP/HTTP collector: write http://host:4318"
	case u.User != nil:
		return key + ": the URL must not contain credentials: set the collector's headers in the environment variable " +
			"OTEL_EXPORTER_OTLP_HEADERS"
	}
	return ""
}

// checkKeyURL validates the URL of a JWK set.
func checkKeyURL(key, s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return key + ": not a URL: write https://host/path"
	case u.Scheme == "http" && !netaddr.IsLoopback(u.Hostname()):
		return key + ": keys fetched over plain http can be replaced in transit, and tokens then forged: write https://"
	}
	return ""
}

// rules reads the paths of the rule files. checkRules checks that the files exist, after all keys are read: they may be
// missing if last_good_file exists.
func (d *decoder) rules(n *yamldoc.Node, key string, c *Config) {
	before := d.Report.Count()
	d.each(n, key, func(_ *yamldoc.Node, s string) { c.Rules = append(c.Rules, d.path(s)) })
	if len(c.Rules) == 0 && d.Report.Count() == before {
		d.Bad(n, "%s: empty list: write %s; to run without rules, use a file with \"rules: []\" and set allow_no_rules: true", key,
			writeRules)
	}
}

func (d *decoder) lastGoodFile(n *yamldoc.Node, key string, c *Config) {
	s, ok := d.notEmpty(n, key)
	if !ok {
		return
	}
	c.LastGoodFile = d.path(s)
	info, err := os.Stat(filepath.Dir(c.LastGoodFile))
	if err != nil || !info.IsDir() {
		d.Bad(n, "%s: directory %s not found: create it; the server does not", key, filepath.Dir(c.LastGoodFile))
	} else if info, err := os.Stat(c.LastGoodFile); err == nil && info.IsDir() {
		d.Bad(n, "%s: %s is a directory: write the path of a file", key, c.LastGoodFile)
	}
}

func (d *decoder) mustBeFile(n *yamldoc.Node, key, path string) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.Bad(n, "%s: file %s not found: create it, or correct the path", key, path)
		return
	case err == nil && info.IsDir():
		d.Bad(n, "%s: %s is a directory: write the path of a file", key, path)
		return
	case err == nil && info.Mode().IsRegular():
		var data []byte
		if data, err = yamldoc.ReadFile(path, maxBytes); err == nil && len(bytes.TrimSpace(data)) == 0 {
			d.Bad(n, "%s: file %s is empty", key, path)
		}
	}
	if err != nil {
		d.Bad(n, "%s: %s is not readable by this user: %v", key, path, cause(err))
	}
}

// isRegular reports whether path is a regular file. Only those are read here: a pipe can be read once, and the server needs
// its content.
func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// cause returns err without the path, which the message already contains.
func cause(err error) error {
	if in, ok := errors.AsType[*fs.PathError](err); ok {
		return in.Err
	}
	return err
}

// algorithms lists the algorithms that package identity accepts. The first three use a shared secret.
var algorithms = []string{
	"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

func checkAlgorithm(s string) string { return checkAmong(s, "that signs tokens", algorithms) }

// checkPublicAlgorithm excludes algorithms with a shared secret: with such a secret the server could also sign tokens, and it
// only has to verify them.
func checkPublicAlgorithm(s string) string { return checkAmong(s, "with a public key", algorithms[3:]) }

func checkAmong(s, kind string, algorithms []string) string {
	if slices.Contains(algorithms, s) {
		return ""
	}
	return fmt.Sprintf("%q is not an algorithm %s: write one or more of %s", yamldoc.Shorten(s), kind, strings.Join(algorithms, ", "))
}

func checkHeader(key, name string) string {
	if strings.Trim(name, headerLetters) != "" {
		return fmt.Sprintf("%s: %q is not a header name: write one like X-API-Key", key, yamldoc.Shorten(name))
	}
	return ""
}

func checkSource(s string) string {
	if source, name, _ := strings.Cut(s, "."); name != "" && (source == "header" || source == "claim") {
		return ""
	}
	return fmt.Sprintf("%q is not a source of an attribute: write header.x-name for a header set by trusted proxies, "+
		"or claim.name for a claim of a token", yamldoc.Shorten(s))
}
