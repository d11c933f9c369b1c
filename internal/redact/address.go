// Package redact makes addresses fit for logs, errors and health reports: of servers, databases and documents, which may have
// passwords and tokens in them.
//
// It shows what it knows to be harmless and hides the rest. What an address that it cannot read might have in it, it does not
// guess.
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// hidden stands for what is not shown.
const hidden = "***"

var (
	hosts    = regexp.MustCompile(`^(?:[\w.%-]+|\[[\w:.%]+\])(?::\d{1,5})?(?:,(?:[\w.%-]+|\[[\w:.%]+\])(?::\d{1,5})?)*$`)
	hostPort = regexp.MustCompile(`^(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}$`)
	name     = regexp.MustCompile(`^[\w.-]+$`)
	path     = regexp.MustCompile(`^[\w.%~/+-]*$`)
	plain    = regexp.MustCompile(`^[\w.,:%/+-]*$`)
	// scheme begins an address.
	scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)
	// addresses are those in a text; assignments are secrets in a text of the form password=….
	addresses   = regexp.MustCompile(`[A-Za-z0-9+.-]*://[^\s"'` + "`" + `<>]+`)
	assignments = regexp.MustCompile(`(?i)((?:password|passwd|pwd|secret|token)\w*["']?\s*=\s*)('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)`)
)

// shownParameters are those of PostgreSQL's addresses that are no secrets.
var shownParameters = []string{
	"application_name", "connect_timeout", "dbname", "host", "port", "sslmode", "target_session_attrs", "user",
}

// Address returns an address without its secrets: without the password, of all but PostgreSQL's without the user, and without
// the values of parameters that are not known to be harmless. An address that cannot be read is hidden.
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
	// A password may have a slash in it that is not encoded: what looks like the host is then a part of it.
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

// user returns what stands before the host. PostgreSQL's user is not secret.
func user(userinfo string, postgres bool) string {
	who, _, hasPassword := strings.Cut(userinfo, ":")
	switch {
	case !postgres || !name.MatchString(who):
		return hidden
	case hasPassword:
		return who + ":" + hidden
	}
	return who
}

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

// Text returns a text in which the addresses and what is assigned to passwords have no secrets. It is for messages of others,
// which may quote an address; whoever knows the address calls Address.
func Text(text string) string {
	text = addresses.ReplaceAllStringFunc(text, func(match string) string {
		address := strings.TrimRight(match, ",;:.)…")
		return Address(address) + match[len(address):]
	})
	return assignments.ReplaceAllString(text, "${1}"+hidden)
}
