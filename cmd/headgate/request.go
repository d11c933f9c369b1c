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

// typedRequest is a request given on the command line, with the attributes that a server would derive from it.
type typedRequest struct {
	attributes headgate.Attributes
	names      []string // the attributes given, in order
	notes      []string // values that were normalized, and attributes that no rule uses
}

// parseRequest parses a method, a path and name=value arguments, in any order.
func parseRequest(args []string) (*typedRequest, error) {
	q := &typedRequest{attributes: headgate.Attributes{}}
	typed := map[string]string{}
	for _, arg := range args {
		name, value, err := parseArgument(arg)
		if err != nil {
			return nil, err
		}
		if typed[name] != "" {
			return nil, fmt.Errorf("%s given twice (each rule file needs its own --rules)", name)
		}
		typed[name] = value
		q.names = append(q.names, name)
	}
	err := q.resolve(typed)
	return q, err
}

func parseArgument(arg string) (name, value string, err error) {
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}
	name, value, pair := strings.Cut(arg, "=")
	switch {
	case strings.HasPrefix(arg, "/"):
		return "path", arg, nil
	case slices.Contains(methods, strings.ToUpper(arg)):
		return "method", arg, nil
	case !pair:
		return "", "", fmt.Errorf("%q: must be a method, a path that begins with /, or name=value", arg)
	case value == "":
		return "", "", fmt.Errorf("%s= has no value: omit it if the request does not have this attribute", name)
	}
	// The rule compiler defines which attribute names are valid.
	_, err = headgate.Compile(headgate.Rule{ID: "x", By: []string{name}, Limit: headgate.PerSecond(1)})
	if invalid, ok := errors.AsType[*headgate.RuleError](err); ok {
		return "", "", errors.New(invalid.Problem)
	}
	return name, value, nil
}

// resolve derives the attributes with package identity, as a server does for a real request, so that both use the same
// counters.
func (q *typedRequest) resolve(typed map[string]string) error {
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
			q.note("%s hashed to %s", name, value)
		default:
			shown, _, _ := strings.Cut(typed[name], "?") // a query may contain a key
			if !strings.EqualFold(value, shown) {
				q.note("%s %s normalized to %s", name, shown, value)
			}
		}
		q.attributes[name] = value
	}
	for name, of := range map[string]string{headgate.OtherPath: "path", headgate.OtherMethod: "method"} {
		if other := read[name]; other != "" && typed[of] != "" {
			q.attributes[name] = other
			q.note("an upstream may interpret the %s as %s: rules that match any interpretation apply", of, strings.ReplaceAll(other, "?", " or "))
		}
	}
	return nil
}

// readOther returns the value of an attribute that package identity does not derive from the request.
func (q *typedRequest) readOther(name, value string) string {
	switch {
	case name == "ip":
		// Servers identify IPv6 clients by their network, so the user may give a network.
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

func (q *typedRequest) note(format string, args ...any) {
	q.notes = append(q.notes, fmt.Sprintf(format, args...))
}
