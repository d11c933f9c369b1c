package main

import (
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// isOf reports whether an entry of the server's slow log is a script call of a request with these keys, as they are or with a suffix:
// all keys are of one length. The server keeps the first 31 arguments; some of the keys are always among them.
func isOf(entry *redis.SlowLog, keys map[string]bool, length int) bool {
	if len(entry.Args) < 3 || !strings.EqualFold(entry.Args[0], "EVALSHA") && !strings.EqualFold(entry.Args[0], "EVAL") {
		return false
	}
	return slices.ContainsFunc(entry.Args[3:], func(key string) bool { return len(key) >= length && keys[key[:length]] })
}
