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

	// forever is what longer waits are read as: 73 years. Half as much again can still be added to it.
	forever time.Duration = 1 << 61
	// sinceEpoch tells seconds to wait from seconds since 1970: as a wait it is 31 years, as a time long past.
	sinceEpoch = 1_000_000_000
	// maxNumber is what larger numbers are read as.
	maxNumber = 1 << 53
)

// advice is what a response says about when to come back: from 0 to forever.
type advice struct {
	wait   time.Duration
	header string // which says so; empty if none does
}

// adviceOf takes the first header that can be read, in order of precedence. What cannot be read is passed over. Of
// several values of one header the longest counts: whoever comes back earlier is denied again.
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
	var told advice
	for _, family := range []string{"X-RateLimit", "RateLimit"} {
		reset := family + "-Reset"
		if !slices.ContainsFunc(h.Values(family+"-Remaining"), nothing) {
			continue
		}
		if wait, ok := longest(h.Values(reset), now, delayOrEpoch); ok && (told.header == "" || wait > told.wait) {
			told = advice{wait, reset}
		}
	}
	return told
}

// longest is the longest wait of the lines that can be read, from 0 to forever.
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

// delayOrDate reads Retry-After: seconds, or a date in one of the three formats of HTTP.
func delayOrDate(line string, now time.Time) (time.Duration, bool) {
	if n, ok := number(line); ok {
		return seconds(n), true
	}
	date, err := http.ParseTime(strings.TrimSpace(line))
	return date.Sub(now), err == nil
}

// delayOrEpoch reads a legacy reset. Servers disagree about which of the two headers holds seconds from now and which
// seconds since 1970, but no number can be meant as both.
func delayOrEpoch(line string, now time.Time) (time.Duration, bool) {
	n, ok := number(line)
	if ok && n >= sinceEpoch {
		return time.Unix(n, 0).Sub(now), true
	}
	return seconds(n), ok
}

// exhausted reads RateLimit, a structured field such as "burst";r=0;t=30, "day";r=7;t=3600: the longest t of the
// policies that have nothing left, in the spelling of any version of the draft.
func exhausted(line string, _ time.Time) (wait time.Duration, found bool) {
	for policy := range split(line, ',') {
		var empty, timed bool
		var reset int64
		name := true
		for parameter := range split(policy, ';') {
			key, value, _ := strings.Cut(parameter, "=")
			remaining, resets := spelled(strings.TrimSpace(key))
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

// spelled reports what a parameter of RateLimit is in some version of the draft.
func spelled(key string) (remaining, resets bool) {
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

// nothing says whether a number of remaining requests is none. Some servers count on below zero.
func nothing(text string) bool {
	positive, negative := strings.CutPrefix(strings.TrimSpace(text), "-")
	n, ok := number(positive)
	return ok && (negative || n == 0)
}

// number reads a number without a sign. Fractions, which some servers send, are rounded up: earlier is too early.
func number(text string) (int64, bool) {
	whole, fraction, _ := strings.Cut(strings.TrimSpace(text), ".")
	if whole == "" || !digits(whole) || !digits(fraction) {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n >= maxNumber {
		return maxNumber, true // digits only, so it is too large
	}
	if strings.Trim(fraction, "0") != "" {
		n++
	}
	return n, true
}

func digits(text string) bool {
	return strings.Trim(text, "0123456789") == ""
}

func seconds(n int64) time.Duration {
	if n >= int64(forever/time.Second) {
		return forever
	}
	return time.Duration(n) * time.Second
}
