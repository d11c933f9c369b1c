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

// listener reads an address with a port, or off, which is "".
func (d *decoder) listener(n *yamldoc.Node, key string) (string, bool) {
	if n.Kind == yamldoc.Number {
		d.Bad(n, "%s: write \":%s\", in quotes and with the colon, or an address with it, 127.0.0.1:%s", key, n.Text, n.Text)
		return "", false
	}
	if n.Kind == yamldoc.Boolean { // older YAML reads a bare off as false, and some tools write it so
		d.Bad(n, "%s wants an address with a port, \":8080\" or 127.0.0.1:8080, or off, not %s", key, n.Text)
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
		d.Bad(n, "%s wants an address with a port, \":8080\" or 127.0.0.1:8080, or off, not %q", key, yamldoc.Shorten(s))
	case badPort != nil:
		d.Bad(n, "%s: there is no port %q: write a number from 0 to 65535", key, yamldoc.Shorten(port))
	case badHost != nil && strings.Trim(host, headerLetters) != "":
		d.Bad(n, "%s: %q is neither an address nor a name of this machine: write 127.0.0.1:%s", key,
			yamldoc.Shorten(host), port)
	default:
		return s, true
	}
	return "", false
}

// checkName says what is wrong with a name of a certificate.
func checkName(name string) string {
	if strings.ContainsAny(name, "* ") || strings.HasPrefix(name, "CN=") {
		return "write a DNS name or a URI as it is in the certificate, gateway.example or spiffe://example/gateway"
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
			d.Bad(n, "%s: %q is no listener that takes refunds: write some of http, grpc", key, yamldoc.Shorten(s))
		}
	})
}

// checkRedis leaves it to package redisstore, whose errors begin with the key.
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
		return key + ": this is no address of PostgreSQL: write postgres://host:5432/headgate"
	}
	return ""
}

// checkCollector is about where spans are sent to, by OTLP over HTTP.
func checkCollector(key, s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "":
		return key + ": this is no address of a collector that takes OTLP over HTTP: write http://host:4318"
	case u.User != nil:
		return key + ": a password does not stand in the config: write the headers for the collector into the variable " +
			"OTEL_EXPORTER_OTLP_HEADERS of the environment"
	}
	return ""
}

// checkKeyURL is about where public keys are.
func checkKeyURL(key, s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return key + ": this is no URL: write https://host/path"
	case u.Scheme == "http" && !netaddr.IsLoopback(u.Hostname()):
		return key + ": keys that come by http can be replaced on the way, and tokens forged with the others: write https://"
	}
	return ""
}

// rules must be there, unless there are kept ones to start with: that is known only when all keys are read.
func (d *decoder) rules(n *yamldoc.Node, key string, c *Config) {
	before := d.Report.Count()
	d.each(n, key, func(_ *yamldoc.Node, s string) { c.Rules = append(c.Rules, d.path(s)) })
	if len(c.Rules) == 0 && d.Report.Count() == before {
		d.Bad(n, "%s names no file or directory: write %s; to run without rules, put a file with \"rules: []\" there, and set allow_no_rules: true", key,
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
		d.Bad(n, "%s: there is no directory %s, and the server does not make it: create it", key, filepath.Dir(c.LastGoodFile))
	} else if info, err := os.Stat(c.LastGoodFile); err == nil && info.IsDir() {
		d.Bad(n, "%s: %s is a directory: write the name of a file in it", key, c.LastGoodFile)
	}
}

func (d *decoder) mustBeFile(n *yamldoc.Node, key, path string) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.Bad(n, "%s: there is no file %s: create it, or correct the path", key, path)
		return
	case err == nil && info.IsDir():
		d.Bad(n, "%s: %s is a directory: write the name of a file in it", key, path)
		return
	case err == nil && info.Mode().IsRegular():
		var data []byte
		if data, err = yamldoc.ReadFile(path, maxBytes); err == nil && len(bytes.TrimSpace(data)) == 0 {
			d.Bad(n, "%s: the file %s is empty", key, path)
		}
	}
	if err != nil {
		d.Bad(n, "%s: %s cannot be read by this user: %v", key, path, cause(err))
	}
}

// isRegular says whether a file can be read twice, as a pipe cannot: what is read here would be gone for the server.
func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// cause leaves out the path, which is said already.
func cause(err error) error {
	if in, ok := errors.AsType[*fs.PathError](err); ok {
		return in.Err
	}
	return err
}

// algorithms are those that package identity takes, those with a shared secret first.
var algorithms = []string{
	"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

func checkAlgorithm(s string) string { return checkAmong(s, "that signs", algorithms) }

// checkPublicAlgorithm leaves out those whose secret could sign, too: a server needs to know only who did.
func checkPublicAlgorithm(s string) string { return checkAmong(s, "with a public key", algorithms[3:]) }

func checkAmong(s, kind string, algorithms []string) string {
	if slices.Contains(algorithms, s) {
		return ""
	}
	return fmt.Sprintf("%q is not an algorithm %s: write some of %s", yamldoc.Shorten(s), kind, strings.Join(algorithms, ", "))
}

func checkHeader(key, name string) string {
	if strings.Trim(name, headerLetters) != "" {
		return fmt.Sprintf("%s: %q is no name of a header: write one like X-API-Key", key, yamldoc.Shorten(name))
	}
	return ""
}

func checkPlace(s string) string {
	if place, name, _ := strings.Cut(s, "."); name != "" && (place == "header" || place == "claim") {
		return ""
	}
	return fmt.Sprintf("%q does not say where it comes from: write header.x-name, which trusted proxies are believed "+
		"about, or claim.name, of a token", yamldoc.Shorten(s))
}
