package main

import (
	"slices"
	"time"
)

const (
	// maxLate is how late requests may be sent. This program does nothing else, so that whatever keeps it from that for
	// longer keeps the nodes as well, and is the machine.
	maxLate = 2 * time.Millisecond
	// maxStood is how many requests may be left out for it, and someStood from how many on a node may have lost the store
	// for it, and found it late.
	maxStood, someStood = 0.25, 0.01
)

// stalls are when this program did not run, though it was due to. An answer that was under way then says nothing of a
// node's latency, as the program could not even have read it, nor of whether the store is used, as the node's deadline
// passed for nothing. All else is judged with it.
type stalls []stood

type stood struct{ from, to time.Duration }

// stallsOf takes samples in the order in which they were due.
func stallsOf(samples []sample) (all stalls) {
	for i := range samples {
		s := &samples[i]
		from, to := s.At, s.At+s.Late
		switch last := len(all) - 1; {
		case s.Late <= maxLate:
		case last >= 0 && from <= all[last].to:
			all[last].to = max(all[last].to, to)
		default:
			all = append(all, stood{from, to})
		}
	}
	return all
}

// during is true of a request that was due or under way in one.
func (all stalls) during(s *sample) bool {
	return slices.ContainsFunc(all, func(st stood) bool { return s.At <= st.to && s.At+s.Latency >= st.from })
}
