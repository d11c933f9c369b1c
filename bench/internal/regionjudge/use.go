package regionjudge

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// Use is how much of the limits was of use in a phase.
type Use struct {
	// Requests were decided, Failed ones have no response.
	Requests, Failed int
	// Admitted are units. Ideal are the units that one counter for all regions would have admitted.
	Admitted, Ideal int64
	// FalseDenials are requests that were denied and that this counter would have admitted.
	FalseDenials int
	// Local are requests that nodes decided by their local fallback share.
	Local int
}

// Utilisation returns the units admitted as a part of those that one counter for all regions would have admitted.
func (u *Use) Utilisation() float64 {
	if u.Ideal == 0 {
		return 1
	}
	return float64(u.Admitted) / float64(u.Ideal)
}

// FalselyDenied returns the false denials as a part of all requests.
func (u *Use) FalselyDenied() float64 { return float64(u.FalseDenials) / float64(max(1, u.Requests)) }

// Uses replays the requests of all regions on one counter for each subject, in the order of their decisions, and returns the use in
// each phase. phases are the times at which phases begin; requests before the first one are counted in none.
func (h *History) Uses(phases []int64) []Use {
	uses := make([]Use, len(phases))
	for i := range h.Rules {
		rule := &h.Rules[i]
		names, subjects := h.subjects(rule.ID)
		for _, name := range names {
			h.replay(rule, subjects[name], func(sent int64) *Use {
				phase, found := slices.BinarySearch(phases, sent)
				if !found {
					phase--
				}
				if phase < 0 {
					return &Use{}
				}
				return &uses[phase]
			})
		}
	}
	return uses
}

// replay counts the requests of one subject.
func (h *History) replay(rule *Rule, records []*Record, use func(sent int64) *Use) {
	at := func(r *Record) int64 {
		from, to := h.span(r)
		return from + (to-from)/2
	}
	limit, offset := rule.Limit, h.offset(rule, records)
	if limit.Algorithm != headgate.TokenBucket {
		limit.Align = headgate.OnClock
	}
	var ideal headgate.State
	for _, r := range slices.SortedStableFunc(slices.Values(records), func(a, b *Record) int { return cmp.Compare(at(a), at(b)) }) {
		u := use(r.Sent)
		if !r.decided() {
			u.Failed++
			continue
		}
		u.Requests++
		if r.Path == pathLocal {
			u.Local++
		}
		now := time.UnixMicro(at(r) - offset)
		var result headgate.Result
		ideal, result = limit.Take(ideal, headgate.Charge{Cost: r.Cost}, now)
		u.Ideal += result.Granted
		switch {
		case r.Allowed:
			u.Admitted += r.Cost
		case result.Allowed:
			u.FalseDenials++
		}
	}
}

// offset returns when windows begin, as a time after multiples of their length, in microseconds.
func (h *History) offset(rule *Rule, records []*Record) int64 {
	if rule.Limit.Algorithm == headgate.TokenBucket {
		return 0
	}
	length := rule.Limit.Window.Microseconds()
	for _, r := range records {
		if r.Allowed && r.Path == pathStore && r.Reset > 0 {
			return (r.Reset - h.Skew[r.Region]) % length
		}
	}
	return 0
}
