package main

import (
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// isOf reports whether a slow log entry is a script call of a request with these keys, possibly with a suffix. All keys have one
// length. The server logs the first 31 arguments, which always include some of the keys.
func isOf(entry *redis.SlowLog, keys map[string]bool, length int) bool {
	if len(entry.Args) < 3 || !strings.EqualFold(entry.Args[0], "EVALSHA") && !strings.EqualFold(entry.Args[0], "EVAL") {
		return false
	}
	return slices.ContainsFunc(entry.Args[3:], func(key string) bool { return len(key) >= length && keys[key[:length]] })
}
