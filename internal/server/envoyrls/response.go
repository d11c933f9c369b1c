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

// response is envoy.service.ratelimit.v3.RateLimitResponse, made of the decisions for the descriptors of a request.
type response struct {
	decisions []headgate.Decision
	headers   *limitfields.Headers
}

// codeOf returns the code OK or OVER_LIMIT.
func codeOf(d *headgate.Decision) uint64 {
	if d.Allowed {
		return 1
	}
	return 2
}

// AppendFields encodes the response.
func (m *response) AppendFields(data []byte) []byte {
	combined := m.combined()
	data = protofields.AppendNumber(data, 1<<3, codeOf(&combined))
	for i := range m.decisions {
		var at int
		data, at = protofields.Open(data, 2<<3|protofields.Bytes)
		data = protofields.Close(appendStatus(data, &m.decisions[i]), at)
	}
	retryAfter := limitfields.RetryAfter(&combined, rand.Int64N)
	data = m.appendHeaders(data, &combined, retryAfter)
	if !combined.Allowed { // Envoy sets the status
		_, body := limitfields.Problem(&combined, retryAfter, http.StatusTooManyRequests)
		data = protofields.AppendBytes(data, 5<<3|protofields.Bytes, body)
	}
	return appendMetadata(data, &combined)
}

// combined merges all decisions into one.
func (m *response) combined() headgate.Decision {
	if len(m.decisions) == 1 {
		return m.decisions[0]
	}
	count := 0
	for i := range m.decisions {
		count += len(m.decisions[i].Limits)
	}
	combined := headgate.Decision{Allowed: true, Path: headgate.PathNone, Limits: make([]headgate.LimitDecision, 0, count)}
	for i := range m.decisions {
		d := &m.decisions[i]
		combined.Limits = append(combined.Limits, d.Limits...)
		combined.Version = cmp.Or(d.Version, combined.Version)
		if !d.Allowed {
			combined.Allowed = false
			if limitfields.Longer(d.RetryAfter, combined.RetryAfter) {
				combined.RetryAfter = d.RetryAfter
			}
		}
		if withoutStore(d.Path) || combined.Path == headgate.PathNone || combined.Path == headgate.PathExempt {
			combined.Path = d.Path
		}
	}
	return combined
}

// withoutStore reports whether a decision was made without the store because the store did not respond.
func withoutStore(p headgate.Path) bool { return p == headgate.PathLocal || p == headgate.PathFailed }

// appendStatus encodes a DescriptorStatus. It contains one limit: an exposed one, or the one that denies.
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

// appendLimit encodes a RateLimit: units per unit of time, or per several of them.
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

// unitOf returns a limit's unit and the number of units in its window. The unit is 0 (unknown) if the window is not a whole
// number of seconds.
func unitOf(l *headgate.Limit) (unit, times uint64) {
	if l.Calendar != headgate.NoCalendar {
		return calendars[l.Calendar], 1
	}
	for _, number := range [...]uint64{year, 5, week, 4, 3, 2, 1} { // longest first
		if length := units[number]; l.Window%length == 0 {
			return number, uint64(l.Window / length)
		}
	}
	return 0, 1
}

// short clamps a number to 32 bits.
func short(n int64) uint64 { return uint64(min(max(0, n), math.MaxUint32)) }

// appendHeaders encodes the headers for the client. Envoy requires lower-case names.
func (m *response) appendHeaders(data []byte, d *headgate.Decision, retryAfter *int64) []byte {
	m.headers.Each(d, retryAfter, func(field *limitfields.Field, value []byte) { data = appendHeader(data, field.Lower, value) })
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

// appendMetadata encodes metadata for the access log: the rule that denies, or would deny in shadow mode, the version of the
// rules, and the path if the store did not respond. There is none for an allowed request without these.
func appendMetadata(data []byte, d *headgate.Decision) []byte {
	denied, would := d.DeniedBy(), shadow(d)
	if denied == nil && would == nil && !withoutStore(d.Path) {
		return data
	}
	data, at := protofields.Open(data, 6<<3|protofields.Bytes)
	if denied != nil {
		data = appendText(data, "rule", limitfields.Name(denied))
		if d.RetryAfter >= 0 {
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

// shadow returns the first limit that is not enforced and would deny, or nil.
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

// appendValue encodes a field of a google.protobuf.Struct.
func appendValue(data []byte, name string, value func([]byte) []byte) []byte {
	data, at := protofields.Open(data, 1<<3|protofields.Bytes)
	data = protofields.AppendString(data, 1<<3|protofields.Bytes, name)
	data, inner := protofields.Open(data, 2<<3|protofields.Bytes)
	data = protofields.Close(value(data), inner)
	return protofields.Close(data, at)
}
