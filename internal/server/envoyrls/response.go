package envoyrls

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/protofields"
)

// response is envoy.service.ratelimit.v3.RateLimitResponse, of the decisions on a request's descriptors.
type response struct {
	decisions []headgate.Decision
	headers   *limitfields.Headers
}

// codeOf is OK or OVER_LIMIT.
func codeOf(d *headgate.Decision) uint64 {
	if d.Allowed {
		return 1
	}
	return 2
}

// AppendFields writes the response.
func (m *response) AppendFields(data []byte) []byte {
	whole := m.whole()
	data = protofields.AppendNumber(data, 1<<3, codeOf(&whole))
	for i := range m.decisions {
		var at int
		data, at = protofields.Open(data, 2<<3|protofields.Bytes)
		data = protofields.Close(appendStatus(data, &m.decisions[i]), at)
	}
	again := limitfields.RetryAfter(&whole, rand.Int64N)
	data = m.appendHeaders(data, &whole, again)
	if !whole.Allowed { // the status is Envoy's to say
		_, body := limitfields.Problem(&whole, again, http.StatusTooManyRequests)
		data = protofields.AppendBytes(data, 5<<3|protofields.Bytes, body)
	}
	return appendMetadata(data, &whole)
}

// whole is all decisions as one.
func (m *response) whole() headgate.Decision {
	if len(m.decisions) == 1 {
		return m.decisions[0]
	}
	count := 0
	for i := range m.decisions {
		count += len(m.decisions[i].Limits)
	}
	whole := headgate.Decision{Allowed: true, Path: headgate.PathNone, Limits: make([]headgate.LimitDecision, 0, count)}
	for i := range m.decisions {
		d := &m.decisions[i]
		whole.Limits = append(whole.Limits, d.Limits...)
		whole.Version = cmp.Or(d.Version, whole.Version)
		if !d.Allowed {
			whole.Allowed = false
			if limitfields.Longer(d.RetryAfter, whole.RetryAfter) {
				whole.RetryAfter = d.RetryAfter
			}
		}
		if without(d.Path) || whole.Path == headgate.PathNone || whole.Path == headgate.PathExempt {
			whole.Path = d.Path
		}
	}
	return whole
}

// without is true of decisions made without the store, which did not answer.
func without(p headgate.Path) bool { return p == headgate.PathLocal || p == headgate.PathFailed }

// appendStatus writes a DescriptorStatus. It shows one limit: one that clients may know of, or the one that denies.
func appendStatus(data []byte, d *headgate.Decision) []byte {
	data = protofields.AppendNumber(data, 1<<3, codeOf(d))
	l := d.Shown()
	if l == nil || !limitfields.HasLimit(l) {
		return data
	}
	data, at := protofields.Open(data, 2<<3|protofields.Bytes)
	data = protofields.Close(appendLimit(data, l), at)
	data = protofields.AppendNumber(data, 3<<3, short(limitfields.Remaining(l)))
	data, at = protofields.Open(data, 4<<3|protofields.Bytes)
	wait := max(0, limitfields.ResetAfter(l))
	data = protofields.AppendNumber(data, 1<<3, uint64(wait/time.Second))
	data = protofields.AppendNumber(data, 2<<3, uint64(wait%time.Second))
	return protofields.Close(data, at)
}

// appendLimit writes a RateLimit: so many in a unit of time, or in several of them.
func appendLimit(data []byte, l *headgate.LimitDecision) []byte {
	unit, times := unitOf(&l.Limit)
	data = protofields.AppendNumber(data, 1<<3, short(l.Limit.Count))
	data = protofields.AppendNumber(data, 2<<3, unit)
	data = protofields.AppendString(data, 3<<3|protofields.Bytes, limitfields.PublicName(l))
	if times > 1 {
		var at int
		data, at = protofields.Open(data, 4<<3|protofields.Bytes)
		data = protofields.Close(protofields.AppendNumber(data, 1<<3, times), at)
	}
	return data
}

var calendars = map[headgate.Calendar]uint64{
	headgate.Minute: 2, headgate.Hour: 3, headgate.Day: 4, headgate.Week: 7, headgate.Month: 5,
}

// unitOf is a limit's unit and how many of them its window has; of a window that is no whole seconds it is unknown.
func unitOf(l *headgate.Limit) (unit, times uint64) {
	if l.Calendar != headgate.NoCalendar {
		return calendars[l.Calendar], 1
	}
	for _, number := range [...]uint64{year, 5, week, 4, 3, 2, 1} { // the longest first
		if length := units[number]; l.Window%length == 0 {
			return number, uint64(l.Window / length)
		}
	}
	return 0, 1
}

// short is a number in 32 bits.
func short(n int64) uint64 { return uint64(min(max(0, n), math.MaxUint32)) }

// appendHeaders writes what the client is told. Envoy wants names in small letters.
func (m *response) appendHeaders(data []byte, d *headgate.Decision, again *int64) []byte {
	m.headers.Each(d, again, func(field *limitfields.Field, value []byte) { data = appendHeader(data, field.Lower, value) })
	if !d.Allowed {
		data = appendHeader(data, "content-type", []byte(limitfields.ProblemType))
	}
	return data
}

func appendHeader(data []byte, name string, value []byte) []byte {
	data, at := protofields.Open(data, 3<<3|protofields.Bytes)
	data = protofields.AppendString(data, 1<<3|protofields.Bytes, name)
	data = protofields.AppendBytes(data, 2<<3|protofields.Bytes, value)
	return protofields.Close(data, at)
}

// appendMetadata writes what an operator may want to log: which rule denies or would in shadow, by which version of the rules,
// and who decided if the store did not answer. If all is well there is nothing to say.
func appendMetadata(data []byte, d *headgate.Decision) []byte {
	denied, would := d.DeniedBy(), shadow(d)
	if denied == nil && would == nil && !without(d.Path) {
		return data
	}
	data, at := protofields.Open(data, 6<<3|protofields.Bytes)
	if denied != nil {
		data = appendText(data, "rule", limitfields.Name(denied))
		if d.RetryAfter != headgate.Never {
			data = appendValue(data, "retry_after", func(data []byte) []byte {
				return protowire.AppendFixed64(append(data, 2<<3|byte(protowire.Fixed64Type)), math.Float64bits(d.RetryAfter.Seconds()))
			})
		}
	}
	if would != nil {
		data = appendText(data, "would_deny", limitfields.Name(would))
	}
	data = appendText(data, "path", string(d.Path))
	data = appendText(data, "version", d.Version)
	return protofields.Close(data, at)
}

// shadow is the first limit that is not in force and would deny.
func shadow(d *headgate.Decision) *headgate.LimitDecision {
	for i := range d.Limits {
		if l := &d.Limits[i]; !l.Enforced && l.WouldDeny() {
			return l
		}
	}
	return nil
}

func appendText(data []byte, name, text string) []byte {
	return appendValue(data, name, func(data []byte) []byte {
		return protofields.AppendString(data, 3<<3|protofields.Bytes, text)
	})
}

// appendValue writes a field of a google.protobuf.Struct.
func appendValue(data []byte, name string, value func([]byte) []byte) []byte {
	data, at := protofields.Open(data, 1<<3|protofields.Bytes)
	data = protofields.AppendString(data, 1<<3|protofields.Bytes, name)
	data, inner := protofields.Open(data, 2<<3|protofields.Bytes)
	data = protofields.Close(value(data), inner)
	return protofields.Close(data, at)
}
