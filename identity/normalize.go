package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// keyHash is the attribute that callers send who have only the hash of an API key.
const keyHash = "api_key_hash"

// Normalize rewrites attributes that a caller has taken from a request, in place, so that they are as Attributes makes them: the
// readings of a path, a method in capitals, an address by its prefix, an API key as its hash. A caller that has only the hash of a
// key sends it as api_key_hash. What is normal already stays as it is, except that an api_key is hashed in any case: a client could
// else send the hash of another's.
func (r *Resolver) Normalize(attrs headgate.Attributes) error {
	for name, value := range attrs {
		switch name {
		case "path":
			if value != "" {
				path, other := Path(value)
				if path != value {
					attrs[name] = path
				}
				if given := attrs[headgate.OtherPath]; given == "" && other != "" {
					attrs[headgate.OtherPath] = other
				} else if other != "" {
					attrs[headgate.OtherPath] = given + "?" + other // of a caller that has read the path itself
				}
			}
		case keyHash:
			if value != "" && attrs["api_key"] != "" {
				return fmt.Errorf("%s and api_key are both given: send one of them", keyHash)
			}
			if headgate.EnsureKeyHash(value) != value {
				return errors.New(keyHash + " is not the hash of a key: send sha256: and 22 characters, or the key as api_key")
			}
		default:
			if normal := r.normal(name, value); normal != value {
				attrs[name] = normal
			}
		}
	}
	if hashed, ok := attrs[keyHash]; ok {
		delete(attrs, keyHash)
		if hashed != "" {
			attrs["api_key"] = hashed
		}
	}
	return nil
}

// Put notes one value that a proxy has taken from a request, as Normalize would have it.
func (r *Resolver) Put(attrs headgate.Attributes, name, value string) {
	if name != "path" {
		put(attrs, name, r.normal(name, value))
		return
	}
	path, other := Path(value)
	put(attrs, "path", path)
	put(attrs, headgate.OtherPath, other)
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
	case "api_key", "descriptor.api_key":
		return headgate.HashKey(value)
	case "user_agent":
		return cut(value, MaxValue)
	case headgate.OtherPath, headgate.OtherMethod:
		return value
	}
	place, rest, _ := strings.Cut(name, ".")
	switch {
	case place == "descriptor":
		return value // it is for the rules to know what it means
	case place == "header" && value != "" && slices.Contains(r.secrets, rest):
		return headgate.EnsureKeyHash(value)
	}
	return bounded(value)
}
