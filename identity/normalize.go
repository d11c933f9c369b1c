package identity

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// maxEntry is the length of the longest value that is used unchanged.
const maxEntry = 8 << 10

// keyHash is the attribute in which a caller sends the hash of an API key instead of the key.
const keyHash = "api_key_hash"

// Normalize rewrites attributes that a caller took from a request, in place, to the form that Attributes returns: the readings of a
// path, a method in upper case, an address as its prefix, an API key as its hash. A caller that has only the hash of a key sends it
// as api_key_hash. Normal values do not change, except that an api_key is always hashed: otherwise a client could send the hash of
// another client's key. A value that is too long is replaced by its hash and never causes an error, because the caller may allow
// requests after an error.
func (r *Resolver) Normalize(attrs headgate.Attributes) error {
	uri := attrs["path"]
	for name, value := range attrs {
		switch name {
		case "path":
			r.normalizePath(attrs, value)
		case keyHash:
			if value != "" && attrs["api_key"] != "" {
				return fmt.Errorf("%s and api_key: send only one of them", keyHash)
			}
			if value != "" && !headgate.IsKeyHash(value) {
				return errors.New(keyHash + ": not the hash of a key: send sha256: and 22 characters, or the key as api_key")
			}
		default:
			if normal := r.normal(name, value); normal != value {
				attrs[name] = normal
			}
		}
	}
	overrideMethod(attrs, uri)
	if hashed, ok := attrs[keyHash]; ok {
		delete(attrs, keyHash)
		if hashed != "" {
			attrs["api_key"] = hashed
		}
	}
	return nil
}

// normalizePath sets the path and its other readings.
func (r *Resolver) normalizePath(attrs headgate.Attributes, value string) {
	if value == "" {
		return
	}
	path, other := Path(withoutAuthority(value))
	if path != value {
		attrs["path"] = path
	}
	switch given := attrs[headgate.OtherPath]; {
	case other == "":
	case given == "":
		attrs[headgate.OtherPath] = other
	case len(given)+len(other) < maxEntry: // the caller sent its own readings, most likely all of them
		attrs[headgate.OtherPath] = given + "?" + other
	}
}

// overrideMethod sets headgate.OtherMethod if a header attribute or the query of the path overrides the method of a POST.
func overrideMethod(attrs headgate.Attributes, uri string) {
	if attrs["method"] != http.MethodPost || attrs[headgate.OtherMethod] != "" {
		return
	}
	var o override
	for _, name := range overrideAttributes {
		o.list(attrs[name])
	}
	if _, query, ok := strings.Cut(uri, "?"); ok {
		o.query(query)
	}
	if o.method != "" {
		attrs[headgate.OtherMethod] = o.method
	}
}

// normal returns the normal form of a value of any attribute but path.
func (r *Resolver) normal(name, value string) string {
	switch name {
	case "method":
		return upperMethod(value)
	case "host":
		return bounded(hostname(value))
	case "ip":
		if addr, ok := parseAddr(value); ok {
			var same [len("255.255.255.255")]byte
			if addr.Is4() && string(addr.AppendTo(same[:0])) == value {
				return value
			}
			return r.proxies.text(addr)
		}
		return bounded(value)
	case "user_agent":
		return cut(value, MaxValue)
	case headgate.OtherPath, headgate.OtherMethod:
		return value
	}
	place, rest, _ := strings.Cut(name, ".")
	switch {
	case headgate.IsKeyAttribute(name):
		return oneKey([]string{value})
	case place == "descriptor" && len(value) <= maxEntry:
		return value // only the rules define its meaning
	case place == "header" && value != "" && slices.Contains(r.secrets, rest):
		return headgate.EnsureKeyHash(value)
	}
	return bounded(value)
}
