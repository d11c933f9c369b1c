package limitfields

import (
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelimitdraft"
)

// The names of headers as http.Header has them.
const (
	FieldPolicy     = "Ratelimit-Policy"
	FieldRateLimit  = "Ratelimit"
	FieldLimit      = "X-Ratelimit-Limit"
	FieldRemaining  = "X-Ratelimit-Remaining"
	FieldReset      = "X-Ratelimit-Reset"
	FieldRetryAfter = "Retry-After"

	FieldOlderLimit     = "Ratelimit-Limit"
	FieldOlderRemaining = "Ratelimit-Remaining"
	FieldOlderReset     = "Ratelimit-Reset"

	maxFields = 8
	// maxSpread is as far as Retry-After is moved, in seconds: nobody is to wait for days more of a month.
	maxSpread = 300
)

// Choice says which headers there are.
type Choice struct {
	// Draft is RateLimit-Policy and RateLimit; Legacy is X-RateLimit-*; Older is RateLimit-Limit and its kin.
	Draft, Legacy, Older bool
	// Version of the draft.
	Version ratelimitdraft.Version
}

// Headers writes the headers of HTTP that tell a client of its limits. It is safe for use by many goroutines.
type Headers struct {
	Choice

	rooms sync.Pool // of *fields
}

var spellings = map[string]string{
	FieldPolicy: "RateLimit-Policy", FieldRateLimit: "RateLimit",
	FieldLimit: "X-RateLimit-Limit", FieldRemaining: "X-RateLimit-Remaining", FieldReset: "X-RateLimit-Reset",
	FieldOlderLimit: "RateLimit-Limit", FieldOlderRemaining: "RateLimit-Remaining", FieldOlderReset: "RateLimit-Reset",
}

// Map returns the headers by their names as people write them, with Retry-After if the request is denied. random is as for
// RetryAfter.
func (h *Headers) Map(d *headgate.Decision, random func(n int64) int64) map[string]string {
	all := make(map[string]string, maxFields+1)
	h.Each(d, func(name string, value []byte) { all[spellings[name]] = string(value) })
	if !d.Allowed && d.RetryAfter != headgate.Never {
		all[FieldRetryAfter] = strconv.FormatInt(RetryAfter(d.RetryAfter, random), 10)
	}
	return all
}

// Put sets the headers.
func (h *Headers) Put(header map[string][]string, d *headgate.Decision) {
	f := h.write(d)
	defer h.rooms.Put(f)
	if f.count > 0 {
		f.put(header)
	}
}

// Each is Put for whoever keeps them elsewhere. A value is good for the call only.
func (h *Headers) Each(d *headgate.Decision, tell func(name string, value []byte)) {
	f := h.write(d)
	defer h.rooms.Put(f)
	begin := 0
	for i, end := range f.ends[:f.count] {
		tell(f.names[i], f.text[begin:end])
		begin = end
	}
}

// write makes the headers in a room, which is to be put back.
func (h *Headers) write(d *headgate.Decision) *fields {
	f, ok := h.rooms.Get().(*fields)
	if !ok {
		f = &fields{text: make([]byte, 0, 512)}
	}
	f.text, f.count = f.text[:0], 0
	if h.Draft {
		f.draft(d, h.Version)
	}
	if l := d.Shown(); l != nil && Known(l) {
		f.shown(l, h.Legacy, h.Older)
	}
	return f
}

// RetryAfter is a wait in whole seconds, moved upward by chance so that clients who were refused together do not come
// back together. random is a number from 0 up to, not including, n.
func RetryAfter(wait time.Duration, random func(n int64) int64) int64 {
	seconds := max(Up(wait, time.Second), 1)
	return seconds + random(min(max(seconds/10, 1), maxSpread)+1)
}

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
func (f *fields) put(header map[string][]string) {
	text, values, begin := string(f.text), make([]string, f.count), 0
	for i, end := range f.ends[:f.count] {
		values[i] = text[begin:end]
		header[f.names[i]] = values[i : i+1 : i+1] // whoever adds a value to one must not write over the next
		begin = end
	}
}

func (f *fields) draft(d *headgate.Decision, v ratelimitdraft.Version) {
	separator, hidden := "", Hidden(d)
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Exposed || l == hidden {
			f.text = append(f.text, separator...)
			f.text = AppendPolicy(f.text, v, l)
			separator = ", "
		}
	}
	f.end(FieldPolicy)
	separator = ""
	for i := range d.Limits {
		if l := &d.Limits[i]; (l.Exposed || l == hidden) && Decided(l) {
			f.text = append(f.text, separator...)
			f.text = AppendState(f.text, v, l)
			separator = ", "
		}
	}
	f.end(FieldRateLimit)
}

// shown writes the headers that have room for one limit. A limit that was not asked has no time at which more is to be
// had.
func (f *fields) shown(l *headgate.LimitDecision, legacy, older bool) {
	most, left := l.Limit.Capacity(), Left(l)
	if legacy {
		f.number(FieldLimit, most)
		f.number(FieldRemaining, left)
		if !l.Time.IsZero() {
			f.number(FieldReset, wholeUnix(l.Time.Add(l.ResetAfter)))
		}
	}
	if older {
		f.number(FieldOlderLimit, most)
		f.number(FieldOlderRemaining, left)
		if !l.Time.IsZero() && l.RetryAfter != headgate.Never {
			f.number(FieldOlderReset, Up(More(l), time.Second))
		}
	}
}

// Left returns what clients are told is left of a limit, counted down from its capacity: of a leaky bucket with a long queue
// there may be more. Of a limit that denies the request it is nothing, also where there is enough for a cheaper one.
func Left(l *headgate.LimitDecision) int64 {
	if l.Refuses() {
		return 0
	}
	return min(l.Remaining, l.Limit.Capacity())
}

// Decided reports whether clients can be told how a limit stands: nobody knows what is left of one that the store did not
// decide, but if it denies the request that is nothing.
func Decided(l *headgate.LimitDecision) bool { return l.Err == nil || l.Refuses() }

func wholeUnix(t time.Time) int64 {
	seconds := t.Unix()
	if t.Nanosecond() > 0 {
		seconds++
	}
	return seconds
}
