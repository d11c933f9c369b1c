// Package redisclient turns an address of Redis into the options of a client: one server, Sentinel or a Cluster, with user, password
// and TLS. It does not connect, and of what is stored it knows only the prefix.
package redisclient

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/redact"
)

// Format is the version of everything that is stored: keys, hashes and their fields.
const Format = "hg2"

// Prefix returns the prefix of all keys and channels of a namespace.
func Prefix(namespace string) string { return Format + ":" + namespace + ":" }

const addressForms = "write redis://host:6379, sentinel://host:26379,host:26379/master or cluster://host:6379,host:6379"

// Options returns the options of a client for an address. The username and password are used if the address has none. Retries are off:
// a script that charges must not run twice.
func Options(address, username, password string, security *tls.Config) (rueidis.ClientOption, error) {
	co := rueidis.ClientOption{
		Username:     username,
		Password:     password,
		TLSConfig:    security,
		DisableRetry: true,
		DisableCache: true,
	}
	fail := func(why string) (rueidis.ClientOption, error) {
		return co, fmt.Errorf("address %q: %s: %s", redact.Address(address), why, addressForms)
	}
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return fail("missing scheme")
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		var err1, err2 error
		co.Username, err1 = url.PathUnescape(user)
		co.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return fail("invalid percent-encoding in user or password")
		}
		rest = rest[at+1:]
	}
	if strings.ContainsAny(rest, "?#") {
		return fail("parameters are not supported: write user:password@host, or set user and password separately")
	}
	hosts, path, _ := strings.Cut(rest, "/")
	port := "6379"
	switch scheme {
	case "redis", "rediss":
		if strings.Contains(hosts, ",") {
			return fail("several hosts: only sentinel:// and cluster:// accept a list")
		}
		if path != "" {
			db, err := strconv.Atoi(path)
			if err != nil || db < 0 {
				return fail("path is not a database number")
			}
			co.SelectDB = db
		}
		if scheme == "rediss" && co.TLSConfig == nil {
			co.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		co.ForceSingleClient = true
	case "sentinel":
		if path == "" {
			return fail("missing master name")
		}
		co.Sentinel = rueidis.SentinelOption{MasterSet: path, TLSConfig: security}
		port = "26379"
	case "cluster":
		if path != "" {
			return fail("a Cluster has no database numbers")
		}
		co.ShuffleInit = true
	default:
		return fail(fmt.Sprintf("unknown scheme %q", scheme))
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return fail("missing host")
		}
		if _, given, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		} else if _, err := strconv.ParseUint(given, 10, 16); err != nil {
			return fail("port is not a number from 0 to 65535")
		}
		co.InitAddress = append(co.InitAddress, host)
	}
	return co, nil
}

// IsCluster reports whether the options are those of a cluster:// address.
func IsCluster(co *rueidis.ClientOption) bool {
	return !co.ForceSingleClient && co.Sentinel.MasterSet == ""
}
