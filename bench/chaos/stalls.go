package main

import (
	"slices"
	"time"
)

const (
	// maxLate is how late requests may be sent. This program does nothing else, so a longer delay is a stall of the machine,
	// which affects the nodes too.
	maxLate = 2 * time.Millisecond
	// maxStalled is the fraction of requests that may be ignored because of stalls. From minStalled on, stalls may have made a
	// node open a circuit, or recover late.
	maxStalled, minStalled = 0.25, 0.01
)

// stalls are the periods in which this program was due to run and did not. A request in flight then is not evidence of a node's
// latency, as the program could not have read the response, nor of whether the store is used, as the node's deadline passed
// during the stall. Everything else is judged with it.
type stalls []stallPeriod

type stallPeriod struct{ from, to time.Duration }

// stallsOf returns the stalls of samples, which must be in the order in which they were due.
func stallsOf(samples []sample) (all stalls) {
	for i := range samples {
		s := &samples[i]
		from, to := s.At, s.At+s.Late
		switch last := len(all) - 1; {
		case s.Late <= maxLate:
		case last >= 0 && from <= all[last].to:
			all[last].to = max(all[last].to, to)
		default:
			all = append(all, stallPeriod{from, to})
		}
	}
	return all
}

// during reports whether a request was due or in flight during a stall.
func (all stalls) during(s *sample) bool {
	return slices.ContainsFunc(all, func(st stallPeriod) bool { return s.At <= st.to && s.At+s.Latency >= st.from })
}
