package checkgrpc

import (
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// responseTo returns the message of a decision. Its limits are allocated at once, because every check has them.
func responseTo(d *headgate.Decision) *checkv1.CheckResponse {
	m := &checkv1.CheckResponse{
		Allowed:      d.Allowed,
		RetryAfterUs: wait(d.RetryAfter),
		DelayUs:      d.Delay.Microseconds(),
		Path:         string(d.Path),
		Version:      d.Version,
		Remaining:    -1,
		Skipped:      d.Skipped,
	}
	if !d.Time.IsZero() {
		m.TimeUs = d.Time.UnixMicro()
	}
	if l := limitfields.Tightest(d); l != nil {
		m.Remaining = limitfields.Remaining(l)
		if !l.Time.IsZero() {
			m.ResetUs = l.Time.Add(l.ResetAfter).UnixMicro()
		}
	}
	if len(d.Limits) == 0 {
		return m
	}
	limits := make([]checkv1.LimitStatus, len(d.Limits))
	m.Limits = make([]*checkv1.LimitStatus, len(d.Limits))
	for i := range d.Limits {
		m.Limits[i] = &limits[i]
		describe(&limits[i], &d.Limits[i], d.Time)
	}
	return m
}

// describe fills in the status of a limit. Its reset is relative to the time of the whole decision, the only time in the
// response: the server's own data may be slightly older.
func describe(m *checkv1.LimitStatus, l *headgate.LimitDecision, decided time.Time) {
	m.Rule, m.Name, m.Missing = l.Rule, l.Name, l.Missing
	m.Allowed, m.Enforced, m.Exposed, m.Failed = l.Allowed, l.Enforced, l.Exposed, l.Err != nil
	m.Cost, m.Granted, m.Remaining = l.Cost, l.Granted, l.Remaining
	m.RetryAfterUs, m.DelayUs = wait(l.RetryAfter), l.Delay.Microseconds()
	reset := l.ResetAfter
	if reset > 0 && !l.Time.IsZero() {
		reset = max(0, reset-decided.Sub(l.Time))
	}
	m.ResetAfterUs = limitfields.RoundUp(reset, time.Microsecond)
	// The enums have the same order, after the unspecified value.
	m.Algorithm, m.Origin = checkv1.Algorithm(l.Limit.Algorithm)+1, checkv1.Origin(l.Origin)+1
	m.Count, m.Burst, m.WindowUs = l.Limit.Count, l.Limit.Burst, limitfields.Window(l).Microseconds()
}

// wait returns the microseconds until a retry, rounded up so that the retry is not too early; -1 means never, and -2 unknown.
func wait(d time.Duration) int64 {
	switch d {
	case headgate.Never:
		return -1
	case headgate.Unknown:
		return -2
	}
	return limitfields.RoundUp(d, time.Microsecond)
}

// span converts microseconds to a Duration, clamped to its range.
func span(us int64) time.Duration {
	const limit = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(max(-limit, min(us, limit))) * time.Microsecond
}
