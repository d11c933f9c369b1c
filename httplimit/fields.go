package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// The headers' names as http.Header has them.
const (
	fieldPolicy         = "Ratelimit-Policy"
	fieldRateLimit      = "Ratelimit"
	fieldLimit          = "X-Ratelimit-Limit"
	fieldRemaining      = "X-Ratelimit-Remaining"
	fieldReset          = "X-Ratelimit-Reset"
	fieldOlderLimit     = "Ratelimit-Limit"
	fieldOlderRemaining = "Ratelimit-Remaining"
	fieldOlderReset     = "Ratelimit-Reset"
	fieldRetryAfter     = "Retry-After"

	maxFields = 8
)

// fields are headers in the making. Their values are written into one buffer, one behind the other, and become one
// string: two allocations for all of them. The buffer is used again.
type fields struct {
	text  []byte
	names [maxFields]string
	ends  [maxFields]int
	count int
}

// end gives what was written since the last one a name. A value that is empty is no header.
func (f *fields) end(name string) {
	begin := 0
	if f.count > 0 {
		begin = f.ends[f.count-1]
	}
	if len(f.text) > begin {
		f.names[f.count], f.ends[f.count] = name, len(f.text)
		f.count++
	}
}

func (f *fields) number(name string, n int64) {
	f.text = strconv.AppendInt(f.text, n, 10)
	f.end(name)
}

// put sets the headers.
func (f *fields) put(header http.Header) {
	text, values, begin := string(f.text), make([]string, f.count), 0
	for i, end := range f.ends[:f.count] {
		values[i] = text[begin:end]
		header[f.names[i]] = values[i : i+1 : i+1] // whoever adds a value to one must not write over the next
		begin = end
	}
}

// tell sets the headers that tell a client of its limits.
func (m *middleware) tell(header http.Header, d *headgate.Decision) {
	if m.headers == Off || len(d.Limits) == 0 {
		return
	}
	f, _ := m.rooms.Get().(*fields)
	defer m.rooms.Put(f)
	f.text, f.count = f.text[:0], 0
	if m.headers != Legacy {
		f.draft(d)
	}
	if l := d.Shown(); l != nil {
		f.shown(l, m.headers != Draft, m.olderDraft)
	}
	if f.count > 0 {
		f.put(header)
	}
}

func (f *fields) draft(d *headgate.Decision) {
	separator := ""
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Exposed {
			f.text = append(f.text, separator...)
			f.text = appendPolicy(f.text, l)
			separator = ", "
		}
	}
	f.end(fieldPolicy)
	separator = ""
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Exposed && l.Err == nil {
			f.text = append(f.text, separator...)
			f.text = appendState(f.text, l)
			separator = ", "
		}
	}
	f.end(fieldRateLimit)
}

// shown writes the headers that have room for one limit. A limit that was not asked has no time at which more is to be
// had.
func (f *fields) shown(l *headgate.LimitDecision, legacy, older bool) {
	most := l.Limit.Capacity()
	left := min(l.Remaining, most) // of a leaky bucket with a long queue there may be more
	if legacy {
		f.number(fieldLimit, most)
		f.number(fieldRemaining, left)
		if !l.Time.IsZero() {
			f.number(fieldReset, wholeUnix(l.Time.Add(l.ResetAfter)))
		}
	}
	if older {
		f.number(fieldOlderLimit, most)
		f.number(fieldOlderRemaining, left)
		if !l.Time.IsZero() {
			f.number(fieldOlderReset, wholeSeconds(more(l)))
		}
	}
}

// appendPolicy writes what a limit is: "search-by-key";q=1000;w=60.
func appendPolicy(text []byte, l *headgate.LimitDecision) []byte {
	text = appendName(text, l)
	text = append(text, ";q="...)
	text = strconv.AppendInt(text, l.Limit.Count, 10)
	if w := window(l); w > 0 {
		text = append(text, ";w="...)
		text = strconv.AppendInt(text, w, 10)
	}
	return text
}

// appendState writes how a limit stands: "search-by-key";r=187;t=1.
func appendState(text []byte, l *headgate.LimitDecision) []byte {
	text = appendName(text, l)
	text = append(text, ";r="...)
	text = strconv.AppendInt(text, l.Remaining, 10)
	if !l.Time.IsZero() {
		text = append(text, ";t="...)
		text = strconv.AppendInt(text, wholeSeconds(more(l)), 10)
	}
	return text
}

// appendName writes a policy's name as a string of a structured field.
func appendName(text []byte, l *headgate.LimitDecision) []byte {
	text = append(text, '"')
	text = appendEscaped(text, l.Rule)
	if l.Name != "" {
		text = append(text, '#')
		text = appendEscaped(text, l.Name)
	}
	return append(text, '"')
}

// appendEscaped leaves the names of a Limiter as they are. A Checker from elsewhere may have others, and must not be
// able to end the string.
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

// policyName is the name of a limit's policy. A rule's ID has no # in it, so no two limits have the same.
func policyName(l *headgate.LimitDecision) string {
	if l.Name == "" {
		return l.Rule
	}
	return l.Rule + "#" + l.Name
}

// window is the span that a limit's count is for, in seconds; 0 if it is not whole seconds or not known.
func window(l *headgate.LimitDecision) int64 {
	if l.Limit.Calendar == headgate.NoCalendar {
		if l.Limit.Window%time.Second != 0 {
			return 0
		}
		return int64(l.Limit.Window / time.Second)
	}
	if l.Time.IsZero() {
		return 0
	}
	// Months, and the days on which clocks are changed, differ in length.
	charge := headgate.Charge{Subject: l.Subject, Limit: l.Limit}
	terms, ok := charge.Terms(l.Time)
	if !ok {
		return 0
	}
	return int64(time.Duration(terms.End-terms.Start) * time.Microsecond / time.Second)
}

// more is how long until the request fits, if it does not, and else until the limit is as if never used. So no client
// is told to wait for a whole bucket if one unit will do, and Retry-After is never earlier.
func more(l *headgate.LimitDecision) time.Duration {
	if l.RetryAfter > 0 {
		return l.RetryAfter
	}
	return l.ResetAfter
}

// wholeSeconds rounds up: a client told to wait too briefly only asks again.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

func wholeUnix(t time.Time) int64 {
	seconds := t.Unix()
	if t.Nanosecond() > 0 {
		seconds++
	}
	return seconds
}
