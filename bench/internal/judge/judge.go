package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kinds of checks.
const (
	// KindTotal: each subject was admitted at most its limit, and at least Least units but for Misses subjects.
	KindTotal = "total"
	// KindCeiling: no window and no span had more than the limit. A token bucket may exceed its burst by Allowance of it.
	KindCeiling = "ceiling"
	// KindUse: admissions were at least the fraction Least of those of a limiter without caching, for the same requests.
	KindUse = "use"
	// KindClaims: an immediate request for all of Remaining was admitted.
	KindClaims = "claims"
	// KindWaits: retries are denied before the RetryAfter of a denial has passed and allowed after it, and no later denial ends
	// earlier.
	KindWaits = "waits"
	// KindHeaders: Retry-After is between the exact wait and the wait plus the documented spread.
	KindHeaders = "headers"
	// KindBalance: the final count differs from the admitted units by at most the fraction Allowance.
	KindBalance = "balance"
	// KindLosses: fixed windows were used up, except for the fraction Allowance ÷ nodes per killed or stopped node.
	KindLosses = "losses"
	// KindOutage: without the store, at least the fraction Least of the limit was admitted, at most the limit plus one unit per
	// node, and every denial had a RetryAfter.
	KindOutage = "outage"
	// KindChange: after all nodes applied another limit, admissions were at most that limit and at least the fraction Least of it.
	KindChange = "change"
	// KindReset: after a reset, admissions were at most the limit and at least the fraction Least of it.
	KindReset = "reset"
	// KindCommits: the final count is the sum of the commits.
	KindCommits = "commits"
	// KindBudget: each subject was admitted exactly its smallest limit, and all its limits counted exactly that. Requests whose
	// caller left may have been admitted. Subjects that a node decided about without the store are not judged.
	KindBudget = "budget"
	// KindSlots: a concurrency limit's units in flight were at most the limit, and none is in use at the end.
	KindSlots = "slots"
)

// Check is one property to judge, for the subjects whose name starts with Subjects.
type Check struct {
	Kind      string  `json:"kind"`
	Subjects  string  `json:"subjects,omitempty"`
	Least     float64 `json:"least,omitempty"`
	Misses    int     `json:"misses,omitempty"`
	Allowance float64 `json:"allowance,omitempty"`
	// Local is the fraction of a limit that nodes with an open circuit may admit in addition in a window, by their local fallback
	// share. It applies to ceilings.
	Local float64 `json:"local,omitempty"`
	// Runs is the minimum number of subjects to judge, Leased that of admissions by lease. They apply to budgets.
	Runs   int `json:"runs,omitempty"`
	Leased int `json:"leased,omitempty"`
}

// Verdict is the result of judging a history.
type Verdict struct {
	// Findings are broken promises.
	Findings []string
	// Figures are the measurements, of broken promises and of kept ones.
	Figures []string
}

func (v *Verdict) find(format string, args ...any) {
	v.Findings = append(v.Findings, fmt.Sprintf(format, args...))
}

func (v *Verdict) figure(format string, args ...any) {
	v.Figures = append(v.Figures, fmt.Sprintf(format, args...))
}

// trial is one check with its records.
type trial struct {
	*Verdict
	header   Header
	check    Check
	subjects map[string][]*Record // by name, in the order of Sent
	events   []*Record
}

// names returns the sorted names of the subjects.
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
	KindBudget: judgeBudget, KindSlots: judgeSlots,
}

// Judge runs all checks of the header. A history that proves nothing, because it has no requests or no responses, is a finding
// too.
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
			v.find("unknown check %q", c.Kind)
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
				v.find("request without a response: %s", r.Error)
			}
		}
	}
	if failed > 1 {
		v.find("%d more requests without a response", failed-1)
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

// seconds formats microseconds as seconds.
func seconds(us int64) string { return fmt.Sprintf("%.6f s", float64(us)/1e6) }
