package headgate

import (
	"fmt"
	"maps"
	"strings"

	"github.com/headgate/headgate/internal/pathreading"
)

// HashKey returns the value of the attribute api_key for an API key: "sha256:" and 22 characters. Keys are stored and compared only
// as such hashes. Use it for keys that clients send, even if they look like a hash. It ignores surrounding white space and returns
// "" for an empty key.
func HashKey(key string) string {
	key = strings.TrimSpace(key)
	if key == "" {
		return ""
	}
	return pathreading.Hash(key)
}

// EnsureKeyHash returns the key unchanged if it already is a hash, and HashKey of it otherwise. Use it for keys that operators write,
// never for keys that clients send: a client that sends the hash of another client's key must not be identified as that client.
func EnsureKeyHash(key string) string {
	if IsKeyHash(key) {
		return key
	}
	return HashKey(key)
}

// ParseKeyHash returns EnsureKeyHash of the key, or an error if the key is an incomplete hash.
func ParseKeyHash(key string) (string, error) {
	if strings.HasPrefix(key, pathreading.HashPrefix) && !IsKeyHash(key) {
		return "", fmt.Errorf("key %q: incomplete hash: must be %q and 22 characters: copy all of it", key, pathreading.HashPrefix)
	}
	return EnsureKeyHash(key), nil
}

// IsKeyHash reports whether a value has the form of a hash that HashKey returns.
func IsKeyHash(value string) bool { return pathreading.IsHash(value) }

// IsKeyAttribute reports whether the values of an attribute are API keys.
func IsKeyAttribute(name string) bool { return name == attrAPIKey || name == attrKeyEntry }

// hashKey returns the attributes with an API key replaced by its hash: a itself if there is nothing to replace, otherwise a copy in
// scratch.
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

// ensureKeyHashes returns EnsureKeyHash of each key.
func ensureKeyHashes(keys []string) []string {
	hashed := make([]string, len(keys))
	for i, key := range keys {
		hashed[i] = EnsureKeyHash(key)
	}
	return hashed
}
