package checkgrpc

import (
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// responseTo is the message of a decision. Its limits are in one piece of memory: there is one per check.
func responseTo(d *headgate.Decision) *checkv1.CheckResponse {
	m := &checkv1.CheckResponse{
		Allowed:      d.Allowed,
		RetryAfterUs: wait(d.RetryAfter),
		DelayUs:      d.Delay.Microseconds(),
		Path:         string(d.Path),
		Version:      d.Version,
		Remaining:    -1,
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
	room := make([]checkv1.LimitStatus, len(d.Limits))
	m.Limits = make([]*checkv1.LimitStatus, len(d.Limits))
	for i := range d.Limits {
		m.Limits[i] = &room[i]
		describe(&room[i], &d.Limits[i], d.Time)
	}
	return m
}

// describe fills in what a limit says. Its reset is counted from the time of the whole decision, which is the only one that a
// caller is told: what this server knew by itself it may have learned a moment earlier.
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
	// The names in both are in the same order, after the one for none.
	m.Algorithm, m.Origin = checkv1.Algorithm(l.Limit.Algorithm)+1, checkv1.Origin(l.Origin)+1
	m.Count, m.Burst, m.WindowUs = l.Limit.Count, l.Limit.Burst, limitfields.Window(l).Microseconds()
}

// wait is a span after which to ask again, rounded up: earlier is too early.
func wait(d time.Duration) int64 {
	if d == headgate.Never {
		return -1
	}
	return limitfields.RoundUp(d, time.Microsecond)
}

// span is a number of microseconds, as far as a Duration can hold it.
func span(us int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(max(-most, min(us, most))) * time.Microsecond
}
