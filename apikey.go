package headgate

import (
	"fmt"
	"maps"
	"strings"

	"github.com/headgate/headgate/internal/pathreading"
)

// HashKey returns the attribute api_key of requests with this API key: "sha256:" and 22 characters. Keys are stored and compared as
// such hashes only. Use it for keys that clients send, whatever they look like. Spaces around a key do not count, and of none there
// is no hash.
func HashKey(key string) string {
	key = strings.TrimSpace(key)
	if key == "" {
		return ""
	}
	return pathreading.Hash(key)
}

// EnsureKeyHash returns HashKey of a key, or what was given if that is such a hash already. It is for what operators write: a client
// that sends the hash of somebody else's key must not be taken for them.
func EnsureKeyHash(key string) string {
	if IsKeyHash(key) {
		return key
	}
	return HashKey(key)
}

// ParseKeyHash is EnsureKeyHash with an error for a part of a hash, which is no key.
func ParseKeyHash(key string) (string, error) {
	if strings.HasPrefix(key, pathreading.HashPrefix) && !IsKeyHash(key) {
		return "", fmt.Errorf("%q is not the whole hash of a key, which is %q and 22 characters: copy all of it", key, pathreading.HashPrefix)
	}
	return EnsureKeyHash(key), nil
}

// IsKeyHash reports whether a value has the form of what HashKey returns.
func IsKeyHash(value string) bool { return pathreading.IsHash(value) }

// IsKeyAttribute reports whether the values of an attribute are API keys.
func IsKeyAttribute(name string) bool { return name == attrAPIKey || name == attrKeyEntry }

// hashKey returns attributes with the hash of an API key in its place: those given, or else a copy in the scratch space.
func hashKey(a Attributes, name string, scratch *Attributes) Attributes {
	key := a[name]
	if key == "" || IsKeyHash(key) {
		return a
	}
	if *scratch == nil {
		*scratch = make(Attributes, len(a))
	}
	maps.Copy(*scratch, a)
	(*scratch)[name] = HashKey(key)
	return *scratch
}

func ensureKeyHashes(keys []string) []string {
	hashed := make([]string, len(keys))
	for i, key := range keys {
		hashed[i] = EnsureKeyHash(key)
	}
	return hashed
}
