package headgate

import (
	"cmp"
	"fmt"
	"slices"
)

// contribution is what a request costs by one of the rules that charge the counters of a rule; see Rule.Counter.
type contribution struct {
	counter int32 // the rule whose counters are charged
	rule    int32
	cost    int64
	unit    int64 // cost of a request with Request.Cost 1; set for reservations
}

// checkBorrowed rejects the fields that a rule with Counter shares with the rule whose counters it charges.
func (r *Rule) checkBorrowed(bad func(...string) func(string, ...any)) {
	for _, f := range []struct {
		key string
		set bool
	}{
		{"by", r.By != nil},
		{"on_missing", r.OnMissing != ShareMissing},
		{"limit", r.Limit != Limit{}},
		{"limits", len(r.Limits) > 0},
		{"tiers", len(r.Tiers) > 0},
		{"max_caller_limit", r.MaxCallerLimit != Limit{}},
		{"candidate", r.Candidate.Limit != Limit{} || len(r.Candidate.Limits) > 0},
		{"overdraw", r.Overdraw},
		{"max_delay", r.MaxDelay != 0},
		{"priority", r.Priority != 0},
		{"enforce_percent", r.EnforcePercent != 0},
		{"regions", r.Regions != EachRegion},
		{"on_store_failure", r.OnStoreFailure != FailLocal},
		{"on_hold_expiry", r.OnHoldExpiry != ReleaseHold},
		{"strict", r.Strict},
		{"critical", r.Critical},
		{"expose", r.Expose != ExposeAuto},
		{"meter", r.Meter},
	} {
		if f.set {
			bad(f.key)("belongs to rule %s, whose counters this rule charges: remove it", quote(r.Counter))
		}
	}
	if text := checkName(r.Counter, maxID, ":/"); text != "" {
		bad("counter")("%s", text)
	}
	if r.Mode != Enforce && r.Mode != Off {
		bad("mode")("belongs to rule %s, whose counters this rule charges: must be enforce or off", quote(r.Counter))
	}
}

// resolveCounters sets what rules share with the rule whose counters they charge, and returns the mistakes in that.
func (s *RuleSet) resolveCounters() []error {
	for i := range s.rules {
		r := &s.rules[i]
		r.counter, r.off, r.priority = int32(i), r.Mode == Off, r.Priority
	}
	var problems []error
	for i := range s.rules {
		r := &s.rules[i]
		if r.Counter == "" {
			continue
		}
		s.borrowing = true
		n, known := s.byID[r.Counter]
		other := -1
		if known && r.Counter != r.ID {
			other = int(n)
		}
		bad := func(path ...string) func(string, ...any) {
			return func(format string, args ...any) {
				problems = append(problems, &RuleError{i, r.ID, path, fmt.Sprintf(format, args...), other})
			}
		}
		if checkName(r.Counter, maxID, ":/") != "" {
			continue // checkBorrowed reports it
		}
		if !known {
			bad("counter")("rule %s not found: write the id of the rule whose counters this rule charges", quote(r.Counter))
			continue
		}
		target := &s.rules[n]
		switch {
		case r.Counter == r.ID:
			bad("counter")("names the rule itself: remove it, or write the id of another rule")
		case target.Counter != "":
			bad("counter")("rule %s charges the counters of rule %s itself: write counter: %s", quote(target.ID), quote(target.Counter), target.Counter)
		case s.by[target.by].path || s.by[target.by].method:
			bad("counter")("rule %s counts by path or method, and only rules that do not can share their counters: write by and limit here instead",
				quote(target.ID))
		default:
			r.counter, r.off, r.priority, r.by = n, r.off || target.off, target.priority, target.by
			r.checkFits(target.limits, bad)
		}
	}
	return problems
}

// exempts reports whether the request is exempt from rule n or from the rule whose counters it charges.
func (ev *evaluation) exempts(lookup *exceptionLookup, n int32) bool {
	rule := &ev.set.rules[n]
	_, by := lookup.exemption(rule)
	if by == "" && rule.counter != n {
		_, by = lookup.exemption(&ev.set.rules[rule.counter])
	}
	return by != ""
}

// applyContributions appends the charges of all contributions: once for each rule whose counters are charged, at the highest cost.
func (ev *evaluation) applyContributions(l *Limiter, lookup *exceptionLookup, byID bool) {
	slices.SortFunc(ev.contributions, func(a, b contribution) int {
		return cmp.Or(cmp.Compare(a.counter, b.counter), cmp.Compare(b.cost, a.cost), cmp.Compare(a.rule, b.rule))
	})
	for i, c := range ev.contributions {
		if i == 0 || c.counter != ev.contributions[i-1].counter {
			ev.apply(l, lookup, c.counter, c.cost, byID)
		}
	}
}

// contributionsTo returns the contributions to the counters of a rule, the highest first.
func (ev *evaluation) contributionsTo(counter int32) []contribution {
	from, _ := slices.BinarySearchFunc(ev.contributions, counter, func(c contribution, counter int32) int { return cmp.Compare(c.counter, counter) })
	to := from
	for to < len(ev.contributions) && ev.contributions[to].counter == counter {
		to++
	}
	return ev.contributions[from:to]
}

// contributors returns the contributions to the counters of a charge that hold has prepared.
func (ev *evaluation) contributors(c *Charge, a *chargeInfo) []contribution {
	if all := ev.contributionsTo(a.rule); len(all) > 0 {
		return all
	}
	return []contribution{{a.rule, a.rule, c.Cost, a.unit}}
}

// reservedUnits returns the costs that a reservation on the counters of a rule records for Commit. They are nil if only that rule
// itself charges them.
func (ev *evaluation) reservedUnits(counter int32) []reservedUnit {
	contributions := ev.contributionsTo(counter)
	if len(contributions) == 0 || len(contributions) == 1 && contributions[0].rule == counter {
		return nil
	}
	units := make([]reservedUnit, len(contributions))
	for i, c := range contributions {
		units[i] = reservedUnit{ev.set.rules[c.rule].ID, c.unit}
	}
	return units
}
