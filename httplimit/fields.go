package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
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
			f.text = limitfields.AppendPolicy(f.text, l)
			separator = ", "
		}
	}
	f.end(fieldPolicy)
	separator = ""
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Exposed && l.Err == nil {
			f.text = append(f.text, separator...)
			f.text = limitfields.AppendState(f.text, l)
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
			f.number(fieldOlderReset, limitfields.Up(limitfields.More(l), time.Second))
		}
	}
}

func wholeUnix(t time.Time) int64 {
	seconds := t.Unix()
	if t.Nanosecond() > 0 {
		seconds++
	}
	return seconds
}
