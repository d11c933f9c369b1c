package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kinds of checks.
const (
	// KindTotal: each subject was admitted no more than its limit, and at least Least units; Misses subjects may miss that.
	KindTotal = "total"
	// KindCeiling: no window and no span had more than the limit. A token bucket may exceed its burst by Allowance of it.
	KindCeiling = "ceiling"
	// KindUse: at least the part Least of what a limiter without caching would have admitted of the same requests.
	KindUse = "use"
	// KindClaims: a request for all that remains, made at once, was admitted.
	KindClaims = "claims"
	// KindWaits: retries fail before the RetryAfter of a denial and succeed after it, and no later denial ends it earlier.
	KindWaits = "waits"
	// KindHeaders: Retry-After lies between the exact wait and that with the documented spread.
	KindHeaders = "headers"
	// KindBalance: the counter ends within the part Allowance of what was admitted.
	KindBalance = "balance"
	// KindLosses: windows of a fixed limit were used up, but for the part Allowance ÷ nodes of each killed or stopped node.
	KindLosses = "losses"
	// KindOutage: without the store at least the part Least of the limit was admitted, at most the limit and a unit per
	// node, and every denial named a wait.
	KindOutage = "outage"
	// KindChange: after all nodes applied another limit, admissions reached at most that limit, and the part Least of it.
	KindChange = "change"
	// KindReset: after a reset at most the limit was admitted, and the part Least of it.
	KindReset = "reset"
	// KindCommits: the counter ends with what was committed.
	KindCommits = "commits"
)

// Check is one property to judge, of the subjects whose name starts with Subjects.
type Check struct {
	Kind      string  `json:"kind"`
	Subjects  string  `json:"subjects,omitempty"`
	Least     float64 `json:"least,omitempty"`
	Misses    int     `json:"misses,omitempty"`
	Allowance float64 `json:"allowance,omitempty"`
	// Local is the part of a limit that nodes which took the store for unavailable may admit on top in a window, by their
	// share. It applies to ceilings.
	Local float64 `json:"local,omitempty"`
}

// Verdict is what a history shows.
type Verdict struct {
	// Findings are promises that were broken.
	Findings []string
	// Figures are what was measured, broken or not.
	Figures []string
}

func (v *Verdict) find(format string, args ...any) {
	v.Findings = append(v.Findings, fmt.Sprintf(format, args...))
}

func (v *Verdict) figure(format string, args ...any) {
	v.Figures = append(v.Figures, fmt.Sprintf(format, args...))
}

// trial is what one check looks at.
type trial struct {
	*Verdict
	header   Header
	check    Check
	subjects map[string][]*Record // by name, in the order in which they were sent
	events   []*Record
}

// names returns the subjects in order.
func (t *trial) names() []string { return slices.Sorted(maps.Keys(t.subjects)) }

// limit returns the limit of a subject that has one.
func (t *trial) limit(name string) Limit { return t.header.Limits[t.subjects[name][0].Limit] }

// label names the subjects of the check in figures.
func (t *trial) label() string {
	if t.check.Subjects == "" {
		return t.check.Kind
	}
	return strings.TrimRight(t.check.Subjects, "/-") + " " + t.check.Kind
}

var kinds = map[string]func(*trial){
	KindTotal: judgeTotal, KindCeiling: judgeCeiling, KindUse: judgeUse, KindClaims: judgeClaims, KindWaits: judgeWaits,
	KindHeaders: judgeHeaders, KindBalance: judgeBalance, KindLosses: judgeLosses, KindOutage: judgeOutage,
	KindChange: judgeChange, KindReset: judgeReset, KindCommits: judgeCommits,
}

// Judge makes all checks of the header. A history that shows nothing, because no request or no answer is in it, is a
// finding as well.
func Judge(h Header, records []Record) Verdict {
	var v Verdict
	ordered := make([]*Record, len(records))
	for i := range records {
		ordered[i] = &records[i]
	}
	slices.SortStableFunc(ordered, func(a, b *Record) int { return int(a.Sent - b.Sent) })
	if len(h.Checks) == 0 {
		v.find("the header names no checks")
	}
	for _, c := range h.Checks {
		t := &trial{Verdict: &v, header: h, check: c, subjects: map[string][]*Record{}}
		for _, r := range ordered {
			switch {
			case r.Op == OpEvent:
				t.events = append(t.events, r)
			case strings.HasPrefix(r.Subject, c.Subjects):
				t.subjects[r.Subject] = append(t.subjects[r.Subject], r)
			}
		}
		judge, ok := kinds[c.Kind]
		switch {
		case !ok:
			v.find("there is no check %q", c.Kind)
		case len(t.subjects) == 0:
			v.find("%s: no requests", t.label())
		default:
			judge(t)
		}
	}
	failed := 0
	for _, r := range ordered {
		if r.Error != "" {
			if failed++; failed == 1 {
				v.find("request without an answer: %s", r.Error)
			}
		}
	}
	if failed > 1 {
		v.find("%d more requests without an answer", failed-1)
	}
	return v
}

// admissions returns the checks that were allowed.
func admissions(records []*Record) (admitted []*Record) {
	for _, r := range records {
		if r.Op == OpCheck && r.Allowed && r.Error == "" {
			admitted = append(admitted, r)
		}
	}
	return admitted
}

func units(records []*Record) (sum int64) {
	for _, r := range records {
		sum += r.Cost
	}
	return sum
}

// seconds is for people.
func seconds(us int64) string { return fmt.Sprintf("%.6f s", float64(us)/1e6) }
