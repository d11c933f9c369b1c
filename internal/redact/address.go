// Package redact removes secrets from addresses for logs, errors and health reports: addresses of servers, databases and documents may
// contain passwords and tokens.
//
// It shows the parts that are known to be harmless and hides the rest. An address that it cannot parse is hidden.
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// hidden replaces a hidden part.
const hidden = "***"

var (
	hosts    = regexp.MustCompile(`^(?:[\w.%-]+|\[[\w:.%]+\])(?::\d{1,5})?(?:,(?:[\w.%-]+|\[[\w:.%]+\])(?::\d{1,5})?)*$`)
	hostPort = regexp.MustCompile(`^(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}$`)
	name     = regexp.MustCompile(`^[\w.-]+$`)
	path     = regexp.MustCompile(`^[\w.%~/+-]*$`)
	plain    = regexp.MustCompile(`^[\w.,:%/+-]*$`)
	// scheme matches the scheme of an address.
	scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)
	// addresses matches addresses in a text; assignments matches secrets of the form password=… in a text.
	addresses   = regexp.MustCompile(`[A-Za-z0-9+.-]*://[^\s"'` + "`" + `<>]+`)
	assignments = regexp.MustCompile(`(?i)((?:password|passwd|pwd|secret|token)\w*["']?\s*=\s*)('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)`)
)

// shownParameters are the parameters of PostgreSQL addresses that are not secret.
var shownParameters = []string{
	"application_name", "connect_timeout", "dbname", "host", "port", "sslmode", "target_session_attrs", "user",
}

// Address returns an address without its secrets: without the password, without the user except in PostgreSQL addresses, and without
// the values of parameters that are not known to be harmless. An address that cannot be parsed is hidden.
func Address(address string) string {
	before, rest, ok := strings.Cut(address, "://")
	switch {
	case !ok && (address == "" || hostPort.MatchString(address)):
		return address
	case !ok || !scheme.MatchString(before):
		return hidden
	}
	shown := before + "://"
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	authority, tail := rest[:end], rest[end:]
	// A password may contain an unencoded slash. What looks like the host is then part of the password.
	if strings.Contains(tail, "@") {
		return shown + hidden
	}
	postgres := before == "postgres" || before == "postgresql"
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		shown += user(authority[:at], postgres) + "@"
		authority = authority[at+1:]
	}
	switch {
	case authority == "" || hosts.MatchString(authority):
		shown += authority
	default:
		return shown + hidden
	}
	tail, fragment, hasFragment := strings.Cut(tail, "#")
	tail, query, hasQuery := strings.Cut(tail, "?")
	if path.MatchString(tail) {
		shown += tail
	} else {
		shown += "/" + hidden
	}
	if hasQuery {
		shown += "?" + parameters(query, postgres)
	}
	if hasFragment && fragment != "" {
		shown += "#" + hidden
	}
	return shown
}

// user returns the userinfo before the host without secrets. The user of PostgreSQL is not secret.
func user(userinfo string, postgres bool) string {
	username, _, hasPassword := strings.Cut(userinfo, ":")
	switch {
	case !postgres || !name.MatchString(username):
		return hidden
	case hasPassword:
		return username + ":" + hidden
	}
	return username
}

// parameters returns a query without secrets.
func parameters(query string, postgres bool) string {
	var all []string
	for pair := range strings.SplitSeq(query, "&") {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok:
			all = append(all, hidden)
		case postgres && slices.Contains(shownParameters, key) && plain.MatchString(value):
			all = append(all, pair)
		case name.MatchString(key):
			all = append(all, key+"="+hidden)
		default:
			all = append(all, hidden)
		}
	}
	return strings.Join(all, "&")
}

// HasPassword reports whether an address has a password, before its host or among its parameters.
func HasPassword(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	if _, has := u.User.Password(); has {
		return true
	}
	return u.Query().Has("password")
}

// Text returns a text without the secrets of its addresses and password assignments. Use it for messages of other programs, which may
// quote an address. If you have the address itself, use Address.
func Text(text string) string {
	text = addresses.ReplaceAllStringFunc(text, func(match string) string {
		address := strings.TrimRight(match, ",;:.)…")
		return Address(address) + match[len(address):]
	})
	return assignments.ReplaceAllString(text, "${1}"+hidden)
}
