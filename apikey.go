package headgate

import (
	"fmt"
	"maps"
	"strings"

	"github.com/headgate/headgate/internal/pathreading"
)

// hashPrefix begins what HashKey returns.
const hashPrefix = "sha256:"

// hashKept is how many characters of the hash are kept: 132 bits, enough that nobody finds two keys with the same.
const hashKept = 22

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
	if isKeyHash(key) {
		return key
	}
	return HashKey(key)
}

// CheckKeyHash says what is wrong with an API key that an operator has written: a part of a hash is no key.
func CheckKeyHash(key string) error {
	if strings.HasPrefix(key, hashPrefix) && !isKeyHash(key) {
		return fmt.Errorf("%q is not the whole hash of a key, which is %q and %d characters: copy all of it", key, hashPrefix, hashKept)
	}
	return nil
}

func isKeyHash(value string) bool {
	text, ok := strings.CutPrefix(value, hashPrefix)
	if !ok || len(text) != hashKept {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// hashKey returns attributes with the hash of an API key in its place.
func hashKey(a Attributes, name string) Attributes {
	if key := a[name]; key != "" && !isKeyHash(key) {
		a = maps.Clone(a)
		a[name] = HashKey(key)
	}
	return a
}

func ensureKeyHashes(keys []string) []string {
	hashed := make([]string, len(keys))
	for i, key := range keys {
		hashed[i] = EnsureKeyHash(key)
	}
	return hashed
}
