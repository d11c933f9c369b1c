// Package limitfields formats the limits of a decision for clients, following draft-ietf-httpapi-ratelimit-headers: the same text
// for HTTP headers and gRPC metadata, and the problem document of a denial. It also logs decisions made without the store. It
// knows the limits of a decision and the names of headers, but not how they are sent.
package limitfields

import (
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelimitdraft"
)

// Name returns the name of a limit's policy. It is unique, because a rule's ID never contains a #.
func Name(l *headgate.LimitDecision) string {
	if l.Name == "" {
		return l.Rule
	}
	return l.Rule + "#" + l.Name
}

// HiddenName replaces the name of a limit that denies a request and whose rule is not exposed. It cannot collide with another
// name, because a rule's ID never contains a parenthesis.
const HiddenName = "(hidden)"

// PublicName returns the name of a limit's policy as clients see it.
func PublicName(l *headgate.LimitDecision) string {
	if !l.Exposed {
		return HiddenName
	}
	return Name(l)
}

// HasLimit reports whether the decision contains a limit to report. It does not if a client of the service got no response and
// decided on its own.
func HasLimit(l *headgate.LimitDecision) bool { return l.Limit != headgate.Limit{} }

// Hidden returns the limit that is reported to clients as HiddenName: the unexposed limit that denies the request with the longest
// wait. It returns nil if no unexposed limit denies the request.
func Hidden(d *headgate.Decision) *headgate.LimitDecision {
	if d.Allowed {
		return nil
	}
	var hidden *headgate.LimitDecision
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Exposed && l.Denies() && HasLimit(l) && (hidden == nil || Longer(l.RetryAfter, hidden.RetryAfter)) {
			hidden = l
		}
	}
	return hidden
}

// Tightest returns the limit to report where only one fits: the limit shown to clients, or else the limit with the smallest
// fraction remaining, so that a caller that checks a single unexposed rule still gets its limit. It returns nil if no limit applied.
func Tightest(d *headgate.Decision) *headgate.LimitDecision {
	if l := d.Shown(); l != nil {
		return l
	}
	var tightest *headgate.LimitDecision
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Origin == headgate.FromCandidate || l.Err != nil {
			continue
		}
		if tightest == nil || Remaining(l)*tightest.Limit.Capacity() < Remaining(tightest)*l.Limit.Capacity() {
			tightest = l
		}
	}
	return tightest
}

// appendPolicy appends a limit's policy: "search-by-key";q=1000;w=60. The window is omitted if it is unknown or not a whole number
// of seconds. A concurrency limit has a unit instead: "exports";q=20;qu="concurrent-requests". The default unit, which is omitted, is
// requests.
func appendPolicy(text []byte, v ratelimitdraft.Version, l *headgate.LimitDecision) []byte {
	names := v.Names()
	text = appendParameter(appendName(text, l), names.Quota, l.Limit.Count)
	if l.Limit.Algorithm == headgate.Concurrency {
		text = append(append(append(text, ';'), names.Unit...), '=', '"')
		return append(append(text, ratelimitdraft.ConcurrentRequests...), '"')
	}
	if w := Window(l); w > 0 && w%time.Second == 0 {
		text = appendParameter(text, names.Window, int64(w/time.Second))
	}
	return text
}

// appendState appends a limit's state: "search-by-key";r=187;t=1. The reset is omitted if the limit was not evaluated because the
// request lacks an attribute, if the limit can never allow the request, or if it does not reset at a known time.
func appendState(text []byte, v ratelimitdraft.Version, l *headgate.LimitDecision) []byte {
	names := v.Names()
	text = appendParameter(appendName(text, l), names.Remaining, Remaining(l))
	if resets(l) && l.RetryAfter >= 0 {
		text = appendParameter(text, names.Reset, RoundUp(ResetAfter(l), time.Second))
	}
	return text
}

// resets reports whether it is known when the limit resets. The units of a concurrency limit are released when requests end.
func resets(l *headgate.LimitDecision) bool {
	return !l.Time.IsZero() && l.Limit.Algorithm != headgate.Concurrency
}

func appendParameter(text []byte, name string, value int64) []byte {
	text = append(append(append(text, ';'), name...), '=')
	return strconv.AppendInt(text, value, 10)
}

// ResetAfter returns the time until a denied request would be allowed, or for an allowed request the time until the window ends or
// the bucket is full. A denied client thus waits only for the units that it lacks, and Retry-After is never earlier than this.
func ResetAfter(l *headgate.LimitDecision) time.Duration {
	if l.RetryAfter > 0 {
		return l.RetryAfter
	}
	return l.ResetAfter
}

// RoundUp returns d in units, rounded up: a client that waits too briefly is only denied again.
func RoundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// appendName appends a policy's name as a string of a structured field. The names of a headgate.Limiter need no escaping; names
// from another Checker might, and must not be able to end the string.
func appendName(text []byte, l *headgate.LimitDecision) []byte {
	text = append(text, '"')
	if !l.Exposed {
		return append(append(text, HiddenName...), '"')
	}
	text = appendEscaped(text, l.Rule)
	if l.Name != "" {
		text = append(text, '#')
		text = appendEscaped(text, l.Name)
	}
	return append(text, '"')
}

func appendEscaped(text []byte, name string) []byte {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			text = append(text, '\\', c)
		case c < ' ' || c > '~':
			text = append(text, '?')
		default:
			text = append(text, c)
		}
	}
	return text
}

// Window returns the length of a limit's window, or 0 if it is unknown. For a calendar limit it is the length of the current
// window, because months and days with a clock change differ in length.
func Window(l *headgate.LimitDecision) time.Duration {
	if l.Limit.Calendar == headgate.NoCalendar {
		return l.Limit.Window
	}
	if l.Time.IsZero() {
		return 0
	}
	charge := headgate.Charge{Subject: l.Subject, Limit: l.Limit}
	terms, ok := charge.Terms(l.Time)
	if !ok {
		return 0
	}
	return time.Duration(terms.End-terms.Start) * time.Microsecond
}
