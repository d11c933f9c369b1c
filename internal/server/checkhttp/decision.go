package checkhttp

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

// decision is the JSON form of a headgate.Decision; openapi.yaml documents its members.
type decision struct {
	Allowed     bool            `json:"allowed"`
	Remaining   *int64          `json:"remaining"`
	Reset       *time.Time      `json:"reset"`
	RetryAfter  seconds         `json:"retry_after"`
	Delay       seconds         `json:"delay"`
	Path        string          `json:"path"`
	Version     string          `json:"version"`
	Time        *time.Time      `json:"time"`
	Reservation string          `json:"reservation,omitempty"`
	Covered     *int64          `json:"covered,omitempty"`
	Slots       string          `json:"slots,omitempty"`
	Lease       seconds         `json:"lease,omitempty"`
	Skipped     []string        `json:"skipped,omitempty"`
	Limits      []limit         `json:"limits"`
	Headers     json.RawMessage `json:"headers"`
}

// limit is the JSON form of a headgate.LimitDecision.
type limit struct {
	Rule       string  `json:"rule"`
	Name       string  `json:"name"`
	Allowed    bool    `json:"allowed"`
	Enforced   bool    `json:"enforced"`
	Exposed    bool    `json:"exposed"`
	Cost       int64   `json:"cost"`
	Granted    int64   `json:"granted"`
	Remaining  *int64  `json:"remaining"`
	RetryAfter seconds `json:"retry_after"`
	ResetAfter seconds `json:"reset_after"`
	Delay      seconds `json:"delay"`
	Limit      string  `json:"limit"`
	Algorithm  string  `json:"algorithm"`
	Count      int64   `json:"count"`
	Window     seconds `json:"window"`
	Burst      *int64  `json:"burst"`
	Origin     string  `json:"origin"`
	Missing    string  `json:"missing"`
	Failed     bool    `json:"failed"`
}

// seconds is a duration in seconds. Negative values, which mean never or unknown, are encoded as null.
type seconds time.Duration

const unknown = seconds(headgate.Never)

// MarshalJSON implements [json.Marshaler].
func (s seconds) MarshalJSON() ([]byte, error) {
	if s < 0 {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// describe returns the response for a decision, or err if it is not nil.
func (h *handler) describe(d *headgate.Decision, err error) (*decision, error) {
	if err != nil {
		return nil, err
	}
	a := &decision{
		Allowed: d.Allowed, RetryAfter: seconds(d.RetryAfter), Delay: seconds(d.Delay),
		Path: string(d.Path), Version: d.Version, Time: instant(d.Time), Skipped: d.Skipped,
		Limits: make([]limit, len(d.Limits)), Headers: h.fields(d),
	}
	if l := limitfields.Tightest(d); l != nil {
		a.Remaining = new(limitfields.Remaining(l))
		if !l.Time.IsZero() {
			a.Reset = instant(l.Time.Add(l.ResetAfter))
		}
	}
	for i := range d.Limits {
		a.Limits[i] = newLimit(&d.Limits[i])
	}
	return a, nil
}

func newLimit(l *headgate.LimitDecision) limit {
	a := limit{
		Rule: l.Rule, Name: l.Name, Allowed: l.Allowed, Enforced: l.Enforced, Exposed: l.Exposed,
		Cost: l.Cost, Granted: l.Granted, RetryAfter: seconds(l.RetryAfter), ResetAfter: unknown, Delay: seconds(l.Delay),
		Limit: l.Limit.String(), Algorithm: l.Limit.Algorithm.String(), Count: l.Limit.Count, Window: unknown,
		Origin: l.Origin.String(), Missing: l.Missing, Failed: l.Err != nil,
	}
	if l.Err == nil {
		a.Remaining = &l.Remaining
	}
	if !l.Time.IsZero() {
		a.ResetAfter = seconds(l.ResetAfter)
	}
	if w := limitfields.Window(l); w > 0 {
		a.Window = seconds(w)
	}
	if l.Limit.Algorithm == headgate.TokenBucket {
		a.Burst = new(l.Limit.Capacity())
	}
	return a
}

// fields returns the headers for the client, as package httplimit would set them, as a JSON object.
func (h *handler) fields(d *headgate.Decision) json.RawMessage {
	object := append(make([]byte, 0, 256), '{')
	h.headers.Each(d, limitfields.RetryAfter(d, h.random), func(field *limitfields.Field, value []byte) {
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = append(strconv.AppendQuote(object, field.Name), ':')
		object = strconv.AppendQuote(object, string(value)) // the value is printable ASCII
	})
	return append(object, '}')
}

// instant returns t in UTC, or nil for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}
