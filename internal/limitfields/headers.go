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

// Field is the name of a header that reports limits to a client.
type Field struct {
	Name  string // as documented: RateLimit-Policy
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
	// maxSpread caps the jitter added to Retry-After, in seconds: without it, a wait of a month would grow by days.
	maxSpread = 300
)

// Choice selects the headers to write. The zero value selects none.
type Choice struct {
	// Draft selects RateLimit-Policy and RateLimit, in this Version of the draft.
	Draft   bool
	Version ratelimitdraft.Version
	// Legacy selects X-RateLimit-Limit, -Remaining and -Reset. OlderDraft selects RateLimit-Limit, -Remaining and -Reset.
	Legacy, OlderDraft bool
}

// Headers writes the headers that report limits to a client. Use Put for an http.Header and Each for any other kind of metadata.
// It is safe for concurrent use.
type Headers struct {
	Choice
	// MaxLimits caps the number of limits that the draft's headers list. The limit that denies a request is always listed.
	// 0 means no cap.
	MaxLimits int

	pool sync.Pool // of *fields
}

// Put sets the headers, replacing existing ones. retryAfter is the result of RetryAfter.
func (h *Headers) Put(header map[string][]string, d *headgate.Decision, retryAfter *int64) {
	f := h.write(d, retryAfter)
	defer h.pool.Put(f)
	if f.count > 0 {
		f.put(header)
	}
}

// Each calls set for each header, Retry-After last. set must not retain value.
func (h *Headers) Each(d *headgate.Decision, retryAfter *int64, set func(field *Field, value []byte)) {
	f := h.write(d, retryAfter)
	defer h.pool.Put(f)
	begin := 0
	for i, end := range f.ends[:f.count] {
		set(f.names[i], f.text[begin:end])
		begin = end
	}
}

// write writes the headers into a buffer from the pool. The caller puts the buffer back.
func (h *Headers) write(d *headgate.Decision, retryAfter *int64) *fields {
	f, ok := h.pool.Get().(*fields)
	if !ok {
		f = &fields{text: make([]byte, 0, 512)}
	}
	f.text, f.count = f.text[:0], 0
	if h.Draft {
		f.draft(d, h)
	}
	if l := d.Shown(); l != nil && HasLimit(l) {
		f.shown(l, h.Legacy, h.OlderDraft)
	}
	if retryAfter != nil {
		f.number(fieldRetryAfter, *retryAfter)
	}
	return f
}

// RetryAfter returns the wait of a denied request in whole seconds, with jitter added so that clients that were denied together
// do not retry together. It returns nil if the request is allowed or can never be allowed. An unknown wait counts as one second. random returns a number in [0, n).
func RetryAfter(d *headgate.Decision, random func(n int64) int64) *int64 {
	if d.Allowed || d.RetryAfter == headgate.Never {
		return nil
	}
	seconds := max(RoundUp(d.RetryAfter, time.Second), 1)
	seconds += random(min(max(seconds/10, 1), maxSpread) + 1)
	return &seconds
}

// fields is a set of headers being written. The values are appended to one buffer, which becomes one string: two allocations for
// all headers. The buffer is reused.
type fields struct {
	text  []byte
	names [maxFields]*Field
	ends  [maxFields]int
	count int
}

// end ends a header's value, which is the text written since the previous call, and sets its name. An empty value is omitted.
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

// put sets the headers in header.
func (f *fields) put(header map[string][]string) {
	text, values, begin := string(f.text), make([]string, f.count), 0
	for i, end := range f.ends[:f.count] {
		values[i] = text[begin:end]
		header[f.names[i].Key] = values[i : i+1 : i+1] // appending to one header must not overwrite the next
		begin = end
	}
}

// draft writes RateLimit-Policy and RateLimit. They list the exposed limits and always the limit that denies the request. A limit
// that the store did not decide has a policy only, because the remaining count is unknown.
func (f *fields) draft(d *headgate.Decision, h *Headers) {
	hidden, denied := Hidden(d), d.DeniedBy()
	for _, name := range [...]*Field{fieldPolicy, fieldRateLimit} {
		separator, listed := "", 0
		for i := range d.Limits {
			l := &d.Limits[i]
			if !l.Exposed && l != hidden || h.MaxLimits > 0 && listed >= h.MaxLimits && l != denied {
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

// shown writes the headers that report a single limit. A limit that was not evaluated has no reset time, nor has a concurrency limit.
func (f *fields) shown(l *headgate.LimitDecision, legacy, older bool) {
	capacity, remaining := l.Limit.Capacity(), Remaining(l)
	if legacy {
		f.number(fieldLimit, capacity)
		f.number(fieldRemaining, remaining)
		if resets(l) {
			f.number(fieldReset, wholeUnix(l.Time.Add(l.ResetAfter)))
		}
	}
	if older {
		f.number(fieldOlderLimit, capacity)
		f.number(fieldOlderRemaining, remaining)
		if resets(l) && l.RetryAfter >= 0 {
			f.number(fieldOlderReset, RoundUp(ResetAfter(l), time.Second))
		}
	}
}

// Remaining returns the remaining count that is reported to clients, at most the limit's capacity: a leaky bucket with a long
// queue may have more left. It returns 0 if the limit denies the request, even if a cheaper request would be allowed.
func Remaining(l *headgate.LimitDecision) int64 {
	if l.Denies() {
		return 0
	}
	return min(l.Remaining, l.Limit.Capacity())
}

// decided reports whether the remaining count of a limit is known. A limit that the store did not decide counts as known if it
// denies the request: nothing is left then.
func decided(l *headgate.LimitDecision) bool { return l.Err == nil || l.Denies() }

// wholeUnix returns t in Unix seconds, rounded up.
func wholeUnix(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }
