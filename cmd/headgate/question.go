package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

// question is a request as somebody typed it, with the attributes that a server would give it.
type question struct {
	attributes headgate.Attributes
	names      []string // that were typed, in order
	notes      []string // what was read otherwise than it was typed, and what no rule looks at
}

// readQuestion reads a method, a path and name=value, in any order.
func readQuestion(args []string) (*question, error) {
	q := &question{attributes: headgate.Attributes{}}
	typed := map[string]string{}
	for _, arg := range args {
		name, value, err := readArgument(arg)
		if err != nil {
			return nil, err
		}
		if typed[name] != "" {
			return nil, fmt.Errorf("there are two of %s (each rule file needs a --rules of its own)", name)
		}
		typed[name] = value
		q.names = append(q.names, name)
	}
	err := q.resolve(typed)
	return q, err
}

func readArgument(arg string) (name, value string, err error) {
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}
	name, value, pair := strings.Cut(arg, "=")
	switch {
	case strings.HasPrefix(arg, "/"):
		return "path", arg, nil
	case slices.Contains(methods, strings.ToUpper(arg)):
		return "method", arg, nil
	case !pair:
		return "", "", fmt.Errorf("%q is neither a method, nor a path that begins with /, nor name=value", arg)
	case value == "":
		return "", "", fmt.Errorf("%s= has no value: leave it out if the request has none", name)
	}
	// Whoever compiles rules knows which attributes there are.
	_, err = headgate.Compile(headgate.Rule{ID: "x", By: []string{name}, Limit: headgate.PerSecond(1)})
	if wrong, ok := errors.AsType[*headgate.RuleError](err); ok {
		return "", "", errors.New(wrong.Problem)
	}
	return name, value, nil
}

// resolve lets package identity read what it would of a real request, so that the counters asked about are those of the
// servers.
func (q *question) resolve(typed map[string]string) error {
	resolver, err := identity.New(identity.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer resolver.Close()
	request := &http.Request{
		Method: typed["method"], RequestURI: typed["path"], URL: &url.URL{}, Host: typed["host"], RemoteAddr: typed["ip"],
		Header: http.Header{"User-Agent": {typed["user_agent"]}},
	}
	for name, value := range typed {
		if header, ok := strings.CutPrefix(name, "header."); ok {
			request.Header.Set(header, value)
		}
	}
	read := resolver.Attributes(request, q.names...)
	for _, name := range q.names {
		value := read[name]
		if value == "" {
			value = q.readOther(name, strings.TrimSpace(typed[name]))
		}
		switch {
		case value == "":
			return fmt.Errorf("%s=%s is not valid", name, typed[name])
		case headgate.IsKeyHash(value) && value != typed[name]:
			q.note("%s is read as %s, its hash", name, value)
		default:
			shown, _, _ := strings.Cut(typed[name], "?") // a query may hold a key
			if !strings.EqualFold(value, shown) {
				q.note("%s %s is read as %s", name, shown, value)
			}
		}
		q.attributes[name] = value
	}
	for name, of := range map[string]string{headgate.OtherPath: "path", headgate.OtherMethod: "method"} {
		if other := read[name]; other != "" && typed[of] != "" {
			q.attributes[name] = other
			q.note("a server might read the %s as %s: rules that match any reading apply", of, strings.ReplaceAll(other, "?", " or "))
		}
	}
	return nil
}

// readOther reads what package identity does not find in such a request.
func (q *question) readOther(name, value string) string {
	switch {
	case name == "ip":
		// IPv6 clients are known by their network, which may be what somebody has at hand.
		network, err := netip.ParsePrefix(value)
		if err != nil {
			return ""
		}
		return network.Masked().String()
	case name == "api_key":
		return headgate.EnsureKeyHash(value)
	case len(value) > identity.MaxValue:
		return headgate.HashKey(value) // as package identity does
	}
	return value
}

func (q *question) note(format string, args ...any) {
	q.notes = append(q.notes, fmt.Sprintf(format, args...))
}
