package limitfields

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelimitdraft"
)

// Field is a header that tells a client of its limits.
type Field struct {
	Name  string // as people write it: RateLimit-Policy
	Key   string // in an http.Header: Ratelimit-Policy
	Lower string // in HTTP/2 and gRPC: ratelimit-policy
}

var (
	fieldPolicy     = newField("RateLimit-Policy")
	fieldRateLimit  = newField("RateLimit")
	fieldLimit      = newField("X-RateLimit-Limit")
	fieldRemaining  = newField("X-RateLimit-Remaining")
	fieldReset      = newField("X-RateLimit-Reset")
	fieldRetryAfter = newField("Retry-After")

	fieldOlderLimit     = newField("RateLimit-Limit")
	fieldOlderRemaining = newField("RateLimit-Remaining")
	fieldOlderReset     = newField("RateLimit-Reset")
)

func newField(name string) *Field {
	return &Field{name, http.CanonicalHeaderKey(name), strings.ToLower(name)}
}

const (
	maxFields = 9
	// maxSpread is as far as Retry-After is moved, in seconds: nobody is to wait for days more of a month.
	maxSpread = 300
)

// Choice says which headers there are; the zero value is none.
type Choice struct {
	// Draft is RateLimit-Policy and RateLimit, as Version of the draft has them.
	Draft   bool
	Version ratelimitdraft.Version
	// Legacy is X-RateLimit-Limit, -Remaining and -Reset; OlderDraft is RateLimit-Limit, -Remaining and -Reset.
	Legacy, OlderDraft bool
}

// Headers writes the headers of HTTP that tell a client of its limits. It is safe for use by many goroutines.
type Headers struct {
	Choice
	// Most is how many limits the draft's headers list; the one that denies a request is listed in any case. 0 means all.
	Most int

	rooms sync.Pool // of *fields
}

// Put sets the headers. retryAfter is what RetryAfter returned.
func (h *Headers) Put(header map[string][]string, d *headgate.Decision, retryAfter *int64) {
	f := h.write(d, retryAfter)
	defer h.rooms.Put(f)
	if f.count > 0 {
		f.put(header)
	}
}

// Each calls set for each header, Retry-After last. A value is good for the call only.
func (h *Headers) Each(d *headgate.Decision, retryAfter *int64, set func(field *Field, value []byte)) {
	f := h.write(d, retryAfter)
	defer h.rooms.Put(f)
	begin := 0
	for i, end := range f.ends[:f.count] {
		set(f.names[i], f.text[begin:end])
		begin = end
	}
}

// write makes the headers in a room, which is to be put back.
func (h *Headers) write(d *headgate.Decision, retryAfter *int64) *fields {
	f, ok := h.rooms.Get().(*fields)
	if !ok {
		f = &fields{text: make([]byte, 0, 512)}
	}
	f.text, f.count = f.text[:0], 0
	if h.Draft {
		f.draft(d, h)
	}
	if l := d.Shown(); l != nil && Known(l) {
		f.shown(l, h.Legacy, h.OlderDraft)
	}
	if retryAfter != nil {
		f.number(fieldRetryAfter, *retryAfter)
	}
	return f
}

// RetryAfter returns the wait of a denied request in whole seconds, moved upward by chance so that clients who were denied
// together do not come back together; nil if the request is allowed or can never pass. random returns a number from 0 up to, not
// including, n.
func RetryAfter(d *headgate.Decision, random func(n int64) int64) *int64 {
	if d.Allowed || d.RetryAfter == headgate.Never {
		return nil
	}
	seconds := max(Up(d.RetryAfter, time.Second), 1)
	seconds += random(min(max(seconds/10, 1), maxSpread) + 1)
	return &seconds
}

// fields are headers in the making. Their values are written into one buffer, one behind the other, and become one
// string: two allocations for all of them. The buffer is used again.
type fields struct {
	text  []byte
	names [maxFields]*Field
	ends  [maxFields]int
	count int
}

// end gives what was written since the last one a name. A value that is empty is no header.
func (f *fields) end(name *Field) {
	begin := 0
	if f.count > 0 {
		begin = f.ends[f.count-1]
	}
	if len(f.text) > begin {
		f.names[f.count], f.ends[f.count] = name, len(f.text)
		f.count++
	}
}

func (f *fields) number(name *Field, n int64) {
	f.text = strconv.AppendInt(f.text, n, 10)
	f.end(name)
}

// put sets the headers.
func (f *fields) put(header map[string][]string) {
	text, values, begin := string(f.text), make([]string, f.count), 0
	for i, end := range f.ends[:f.count] {
		values[i] = text[begin:end]
		header[f.names[i].Key] = values[i : i+1 : i+1] // whoever adds a value to one must not write over the next
		begin = end
	}
}

// draft writes the headers that list limits: those that clients may see, and in any case the one that denies. A limit that the
// store did not decide has a policy only: what is left is not known.
func (f *fields) draft(d *headgate.Decision, h *Headers) {
	hidden, denied := Hidden(d), d.DeniedBy()
	for _, name := range [...]*Field{fieldPolicy, fieldRateLimit} {
		separator, listed := "", 0
		for i := range d.Limits {
			l := &d.Limits[i]
			if !l.Exposed && l != hidden || h.Most > 0 && listed >= h.Most && l != denied {
				continue
			}
			listed++
			switch {
			case name == fieldPolicy:
				f.text = appendPolicy(append(f.text, separator...), h.Version, l)
			case decided(l):
				f.text = appendState(append(f.text, separator...), h.Version, l)
			default:
				continue
			}
			separator = ", "
		}
		f.end(name)
	}
}

// shown writes the headers that have room for one limit. A limit that was not asked has no time at which more is to be
// had.
func (f *fields) shown(l *headgate.LimitDecision, legacy, older bool) {
	most, left := l.Limit.Capacity(), Left(l)
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
		if !l.Time.IsZero() && l.RetryAfter != headgate.Never {
			f.number(fieldOlderReset, Up(More(l), time.Second))
		}
	}
}

// Left returns what clients are told is left of a limit, counted down from its capacity: of a leaky bucket with a long queue
// there may be more. Of a limit that denies the request it is nothing, also where there is enough for a cheaper one.
func Left(l *headgate.LimitDecision) int64 {
	if l.Denies() {
		return 0
	}
	return min(l.Remaining, l.Limit.Capacity())
}

// decided reports whether clients can be told how a limit stands: nobody knows what is left of one that the store did not
// decide, but if it denies the request that is nothing.
func decided(l *headgate.LimitDecision) bool { return l.Err == nil || l.Denies() }

// wholeUnix rounds up, as Up does.
func wholeUnix(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }
