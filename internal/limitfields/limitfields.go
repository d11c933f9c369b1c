// Package limitfields writes limits for clients, as draft-ietf-httpapi-ratelimit-headers has them: the same text in the
// headers of HTTP and in the metadata of gRPC; and for operators, that the store did not decide. It knows a decision's limits and
// the names of headers, and nothing of how they are sent.
package limitfields

import (
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelimitdraft"
)

// Name is that of a limit's policy. A rule's ID has no # in it, so no two limits have the same.
func Name(l *headgate.LimitDecision) string {
	if l.Name == "" {
		return l.Rule
	}
	return l.Rule + "#" + l.Name
}

// HiddenName stands for the name of a limit that denies a request and whose rule is not exposed. No rule's ID has a
// parenthesis in it, so it is nobody else's name.
const HiddenName = "(hidden)"

// PublicName returns the name of a limit's policy as clients see it.
func PublicName(l *headgate.LimitDecision) string {
	if !l.Exposed {
		return HiddenName
	}
	return Name(l)
}

// Known reports whether there is a limit to show: a client of the service that got no answer makes a decision without one.
func Known(l *headgate.LimitDecision) bool { return l.Limit != headgate.Limit{} }

// Hidden returns the limit that clients are shown without its name: of those that are not exposed, the one that denies the
// request for the longest time. It is nil if there is none.
func Hidden(d *headgate.Decision) *headgate.LimitDecision {
	if d.Allowed {
		return nil
	}
	var hidden *headgate.LimitDecision
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Exposed && l.Denies() && Known(l) && (hidden == nil || Longer(l.RetryAfter, hidden.RetryAfter)) {
			hidden = l
		}
	}
	return hidden
}

// Tightest returns the limit for callers who look at one only: the one that clients see. If they see none it is the one with
// the least left, for a caller who asks for one rule wants to know about that one. It is nil if no limit applied.
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
		if tightest == nil || Left(l)*tightest.Limit.Capacity() < Left(tightest)*l.Limit.Capacity() {
			tightest = l
		}
	}
	return tightest
}

// appendPolicy writes what a limit is: "search-by-key";q=1000;w=60. The window is left out if it is not whole seconds or
// not known, and so is the unit, which is requests if nothing else is said.
func appendPolicy(text []byte, v ratelimitdraft.Version, l *headgate.LimitDecision) []byte {
	names := v.Names()
	text = appendParameter(appendName(text, l), names.Quota, l.Limit.Count)
	if w := Window(l); w > 0 && w%time.Second == 0 {
		text = appendParameter(text, names.Window, int64(w/time.Second))
	}
	return text
}

// appendState writes how a limit stands: "search-by-key";r=187;t=1. One that was not asked, because the request lacks an
// attribute, has no time at which that changes, nor has one that the request can never pass.
func appendState(text []byte, v ratelimitdraft.Version, l *headgate.LimitDecision) []byte {
	names := v.Names()
	text = appendParameter(appendName(text, l), names.Remaining, Left(l))
	if !l.Time.IsZero() && l.RetryAfter != headgate.Never {
		text = appendParameter(text, names.Reset, Up(More(l), time.Second))
	}
	return text
}

func appendParameter(text []byte, name string, value int64) []byte {
	text = append(append(append(text, ';'), name...), '=')
	return strconv.AppendInt(text, value, 10)
}

// More is how long until the request fits, if it does not, and else until its window ends or its bucket is full. So no client is
// told to wait for a whole bucket if one unit will do, and Retry-After is never earlier.
func More(l *headgate.LimitDecision) time.Duration {
	if l.RetryAfter > 0 {
		return l.RetryAfter
	}
	return l.ResetAfter
}

// Up counts units, rounded up: a client told to wait too briefly only asks again.
func Up(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// appendName writes a policy's name as a string of a structured field. The names of a Limiter stay as they are; a Checker
// from elsewhere may have others, and must not be able to end the string.
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

// Window is the span that a limit's count is for; 0 if it is not known. Months, and the days on which clocks are
// changed, differ in length.
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
