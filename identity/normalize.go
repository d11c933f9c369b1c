package identity

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// maxEntry is the length of the longest value that is taken as it is.
const maxEntry = 8 << 10

// keyHash is the attribute that callers send who have only the hash of an API key.
const keyHash = "api_key_hash"

// Normalize rewrites attributes that a caller has taken from a request, in place, so that they are as Attributes makes them: the
// readings of a path, a method in capitals, an address by its prefix, an API key as its hash. A caller that has only the hash of a
// key sends it as api_key_hash. What is normal already stays as it is, except that an api_key is hashed in any case: a client could
// else send the hash of another's. Values that are too long are replaced by their hash, and never a reason to reject a request: whoever
// asks may let it pass then.
func (r *Resolver) Normalize(attrs headgate.Attributes) error {
	uri := attrs["path"]
	for name, value := range attrs {
		switch name {
		case "path":
			r.normalizePath(attrs, value)
		case keyHash:
			if value != "" && attrs["api_key"] != "" {
				return fmt.Errorf("%s and api_key are both given: send one of them", keyHash)
			}
			if value != "" && !headgate.IsKeyHash(value) {
				return errors.New(keyHash + " is not the hash of a key: send sha256: and 22 characters, or the key as api_key")
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
	case len(given)+len(other) < maxEntry: // the caller has read the path itself, and most likely all of it
		attrs[headgate.OtherPath] = given + "?" + other
	}
}

// overrideMethod notes the method that a POST stands for, by the query of its target or by a header among the attributes.
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

// normal is a value of any attribute but a path.
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
		return value // it is for the rules to know what it means
	case place == "header" && value != "" && slices.Contains(r.secrets, rest):
		return headgate.EnsureKeyHash(value)
	}
	return bounded(value)
}
