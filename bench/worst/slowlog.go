package main

import (
	"errors"
	"strings"
)

// call is one script call as the server accounts for it.
type call struct {
	Micros int64
	Keys   []string
}

var errSlowlog = errors.New("SLOWLOG GET answered in another format: use Redis 7.0 or Valkey 8.0, or newer")

// scriptCalls returns the script calls among the entries of SLOWLOG GET, newest first. Other commands are left out,
// including those that a script called.
func scriptCalls(reply any) ([]call, error) {
	entries, ok := reply.([]any)
	if !ok {
		return nil, errSlowlog
	}
	var calls []call
	for _, e := range entries {
		entry, _ := e.([]any)
		if len(entry) < 4 {
			return nil, errSlowlog
		}
		micros, isNumber := entry[2].(int64)
		args, isList := entry[3].([]any)
		if !isNumber || !isList || len(args) == 0 {
			return nil, errSlowlog
		}
		if verb, _ := args[0].(string); !strings.EqualFold(verb, "EVALSHA") && !strings.EqualFold(verb, "EVAL") {
			continue
		}
		c := call{Micros: micros}
		// The server keeps the first 31 arguments, and says how many it left out; some of the keys are always among them.
		for _, arg := range args[min(3, len(args)):] {
			if text, ok := arg.(string); ok {
				c.Keys = append(c.Keys, text)
			}
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// of reports whether the call belongs to a request with these keys: the keys of one length, as they are or with a suffix.
func (c call) of(keys map[string]bool, length int) bool {
	for _, k := range c.Keys {
		if len(k) >= length && keys[k[:length]] {
			return true
		}
	}
	return false
}
