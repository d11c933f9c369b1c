package regionjudge

import (
	"fmt"

	"github.com/headgate/headgate"
)

// Bound is how close a rule came to its limit, or by how much it was exceeded.
type Bound struct {
	Rule string
	// Worst is the largest part of the limit that was certainly admitted, over all subjects and windows, or spans of a bucket: at most 1
	// if regions kept the limit. Units that are allowed in addition do not count.
	Worst float64
	// Admitted are the units admitted in total, Local those that a node admitted by its local fallback share. They are not counted by a
	// store when they are admitted, and may exceed the limit.
	Admitted, Local int64
	// Lost are the units that killed stores may have forgotten at most, in windows that had not ended or in buckets: the limit may be
	// exceeded by them.
	Lost int64
	// Findings describe what is wrong.
	Findings []string
}

func (b *Bound) find(format string, args ...any) {
	b.Findings = append(b.Findings, fmt.Sprintf(format, args...))
}

// exceeds records the part of a limit that was admitted somewhere. Buckets are computed with fractions, hence the tolerance.
func (b *Bound) exceeds(part float64) bool {
	b.Worst = max(b.Worst, part)
	return part > 1+1e-9
}

// Bounds judges each rule.
func (h *History) Bounds() []Bound {
	all := make([]Bound, 0, len(h.Rules))
	for i := range h.Rules {
		rule := &h.Rules[i]
		b := Bound{Rule: rule.ID}
		names, subjects := h.subjects(rule.ID)
		for _, name := range names {
			var admitted []*Record
			for _, r := range subjects[name] {
				switch {
				case !r.Allowed:
				case r.Path == pathLocal:
					b.Local += r.Cost
					fallthrough
				default:
					b.Admitted += r.Cost
					admitted = append(admitted, r)
				}
			}
			if rule.Limit.Algorithm == headgate.TokenBucket {
				h.judgeBucket(&b, rule, name, admitted)
			} else {
				h.judgeWindows(&b, rule, name, admitted)
			}
		}
		all = append(all, b)
	}
	return all
}
