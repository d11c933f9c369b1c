package retryafter

import (
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/ratelimitdraft"
)

const (
	retryAfter = "Retry-After"
	rateLimit  = "RateLimit"

	// forever is the cap of all waits, 73 years. Adding half of it does not overflow.
	forever time.Duration = 1 << 61
	// sinceEpoch distinguishes seconds to wait from seconds since 1970: as a wait it is 31 years, as a time it is long past.
	sinceEpoch = 1_000_000_000
	// maxNumber is the cap of all numbers.
	maxNumber = 1 << 53
)

// advice is the wait that a response requests, from 0 to forever.
type advice struct {
	wait   time.Duration
	header string // the header that requests the wait; empty if none does
}

// adviceOf returns the wait of the first valid header, in order of precedence. Invalid values are ignored. If a header has several
// values, the longest wait is used, because an earlier retry would be denied again.
func adviceOf(h http.Header, now time.Time) advice {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	if wait, ok := longest(h.Values(retryAfter), now, delayOrDate); ok {
		return advice{wait, retryAfter}
	}
	if wait, ok := longest(h.Values(rateLimit), now, exhausted); ok {
		return advice{wait, rateLimit}
	}
	var result advice
	for _, family := range []string{"X-RateLimit", "RateLimit"} {
		reset := family + "-Reset"
		if !slices.ContainsFunc(h.Values(family+"-Remaining"), nothing) {
			continue
		}
		if wait, ok := longest(h.Values(reset), now, delayOrEpoch); ok && (result.header == "" || wait > result.wait) {
			result = advice{wait, reset}
		}
	}
	return result
}

// longest returns the longest wait of the valid lines, from 0 to forever.
func longest(
	lines []string, now time.Time, read func(string, time.Time) (time.Duration, bool),
) (wait time.Duration, found bool) {
	for _, line := range lines {
		if one, ok := read(line, now); ok {
			wait, found = max(wait, min(one, forever)), true
		}
	}
	return wait, found
}

// delayOrDate parses Retry-After: seconds, or a date in one of the three formats of HTTP.
func delayOrDate(line string, now time.Time) (time.Duration, bool) {
	if n, ok := number(line); ok {
		return seconds(n), true
	}
	date, err := http.ParseTime(strings.TrimSpace(line))
	return date.Sub(now), err == nil
}

// delayOrEpoch parses a legacy reset. Servers disagree about which of the two headers contains seconds from now and which seconds
// since 1970, but sinceEpoch separates the two.
func delayOrEpoch(line string, now time.Time) (time.Duration, bool) {
	n, ok := number(line)
	if ok && n >= sinceEpoch {
		return time.Unix(n, 0).Sub(now), true
	}
	return seconds(n), ok
}

// exhausted parses RateLimit, a structured field such as "burst";r=0;t=30, "day";r=7;t=3600, in any version of the draft. It returns
// the longest t of the policies with nothing remaining.
func exhausted(line string, _ time.Time) (wait time.Duration, found bool) {
	for policy := range split(line, ',') {
		var empty, timed bool
		var reset int64
		name := true
		for parameter := range split(policy, ';') {
			key, value, _ := strings.Cut(parameter, "=")
			remaining, resets := parameterKind(strings.TrimSpace(key))
			switch {
			case name:
				name = false
			case remaining:
				empty = nothing(value)
			case resets:
				reset, timed = number(value)
			}
		}
		if empty && timed {
			wait, found = max(wait, seconds(reset)), true
		}
	}
	return wait, found
}

// parameterKind reports whether a parameter of RateLimit is the remaining count or the reset in some version of the draft.
func parameterKind(key string) (remaining, resets bool) {
	for _, names := range ratelimitdraft.All() {
		remaining = remaining || key == names.Remaining
		resets = resets || key == names.Reset
	}
	return remaining, resets
}

// split cuts a structured field at a separator, but not within its strings.
func split(text string, separator byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, quoted := 0, false
		for i := 0; i < len(text); i++ {
			switch c := text[i]; {
			case quoted && c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case c == separator && !quoted:
				if !yield(text[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(text[start:])
	}
}

// nothing reports whether a remaining count is zero or less. Some servers count below zero.
func nothing(text string) bool {
	positive, negative := strings.CutPrefix(strings.TrimSpace(text), "-")
	n, ok := number(positive)
	return ok && (negative || n == 0)
}

// number parses an unsigned number. Fractions, which some servers send, are rounded up, because earlier is too early.
func number(text string) (int64, bool) {
	whole, fraction, _ := strings.Cut(strings.TrimSpace(text), ".")
	if whole == "" || !digits(whole) || !digits(fraction) {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n >= maxNumber {
		return maxNumber, true // only digits, so the number is too large
	}
	if strings.Trim(fraction, "0") != "" {
		n++
	}
	return n, true
}

// digits reports whether text consists of digits only.
func digits(text string) bool {
	return strings.Trim(text, "0123456789") == ""
}

// seconds returns n seconds, at most forever.
func seconds(n int64) time.Duration {
	if n >= int64(forever/time.Second) {
		return forever
	}
	return time.Duration(n) * time.Second
}
