package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Explanation is a decision with its reasons.
type Explanation struct {
	// Decision is the decision that Check would have returned. Nothing was charged: Remaining is as before the request.
	Decision Decision
	// Holders are who has the units of Decision.Limits at the same index, if that is a concurrency limit and the store is a SlotStore.
	Holders [][]Holder
	// Rules explains every rule in force, in their order.
	Rules []RuleExplanation
}

// RuleExplanation is why a rule applies to a request or does not.
type RuleExplanation struct {
	Rule    Rule
	Applies bool
	// Why is the reason why the rule does not apply. If it applies, Why notes anything unusual, such as shadow mode or an override;
	// it is often empty.
	Why string
	// Subject has the attributes that the request is counted by, if the rule applies: {"ip": "192.0.2.1"}. Missing attributes have
	// an empty value.
	Subject Attributes
}

// Explain returns the decision that Check would return, and why, without charging. It evaluates all rules and ignores Request.Rule.
// The error is the store's if the store is unavailable.
func (l *Limiter) Explain(ctx context.Context, req Request) (Explanation, error) {
	ev, _ := l.evaluations.Get().(*evaluation)
	defer l.release(ev)
	set := l.rules.Load()
	req.Rule, ev.slots = "", slotsPeeked
	_ = ev.prepare(l, set, req) // it fails only for an unknown Request.Rule
	e := Explanation{Rules: make([]RuleExplanation, len(set.rules))}
	if set.mode == Off {
		ev.view.load(set, req.Attributes) // prepare did not, since all rules are off
	}
	lookup := l.exceptions.lookup(ev.view.attributes)
	displaced := set.displaced(&ev.view)
	for i := range set.rules {
		e.Rules[i] = ev.explain(&lookup, int32(i), displaced)
	}
	var err error
	e.Decision, err = ev.peek(ctx, l.store)
	e.Holders = make([][]Holder, len(e.Decision.Limits))
	for i := range e.Decision.Limits {
		if limit := &e.Decision.Limits[i]; limit.Limit.Algorithm == Concurrency && err == nil {
			if e.Holders[i], err = l.Holders(ctx, limit); errors.Is(err, errors.ErrUnsupported) {
				err = nil
			}
		}
	}
	return e, err
}

// displaced returns, for each rule whose conditions hold in at least one reading, the index of a rule that displaces it, or -1 if
// the rule is not displaced in at least one of its readings.
func (s *RuleSet) displaced(v *view) map[int32]int32 {
	by := map[int32]int32{}
	for p := range v.readings.paths {
		for m := range v.readings.methods {
			v.selectReading(p, m)
			var matching []int32
			for i := range s.rules {
				if s.rules[i].matches(v) {
					matching = append(matching, int32(i))
				}
			}
			for i, n := range matching {
				if superior := s.superior(matching, i); superior < 0 {
					by[n] = -1
				} else if _, known := by[n]; !known {
					by[n] = matching[superior]
				}
			}
		}
	}
	v.selectReading(0, 0)
	return by
}

// explain returns why rule n applies to the request or does not.
func (ev *evaluation) explain(lookup *exceptionLookup, n int32, displaced map[int32]int32) RuleExplanation {
	rule := &ev.set.rules[n]
	e := RuleExplanation{Rule: rule.Rule}
	if ev.set.mode == Off {
		e.Why = "all rules are off"
		return e
	}
	superior, matches := displaced[n]
	target := &ev.set.rules[rule.counter]
	if !matches {
		e.Why = rule.mismatch(&ev.view)
		if rule.off && rule.Mode != Off {
			e.Why = fmt.Sprintf("charges the counters of rule %q, whose mode is off", target.ID)
		}
		return e
	}
	if superior >= 0 {
		other := &ev.set.rules[superior]
		e.Why = fmt.Sprintf("displaced by rule %q: its priority %d is above %d and it counts by the same attributes", other.ID, other.priority, rule.priority)
		return e
	}
	for _, r := range []*compiledRule{rule, target} {
		x, by := lookup.exemption(r)
		if by == "" {
			continue
		}
		e.Why = "exempt by " + by + expirySuffix(x.expires) + reasonSuffix(x.reason.Value())
		if r != rule {
			e.Why += fmt.Sprintf(" from rule %q, whose counters it charges", r.ID)
		}
		return e
	}
	e.Subject = Attributes{}
	missing := ""
	attributes := ev.firstCounted(n)
	for _, name := range ev.set.by[rule.by].resolve(attributes) {
		e.Subject[name] = attributes[name]
		if e.Subject[name] == "" {
			missing = name
		}
	}
	if missing != "" && target.OnMissing == SkipMissing {
		e.Why, e.Subject = "the request has no "+missing+", and on_missing is skip", nil
		return e
	}
	e.Applies = true
	e.Why = strings.Join(ev.remarks(lookup, n, missing), "; ")
	return e
}

// firstCounted returns the attributes that the first charge of a rule is counted by.
func (ev *evaluation) firstCounted(n int32) Attributes {
	rule, readings := &ev.set.rules[n], &ev.view.readings
	if !ev.countsReadings(rule) {
		return ev.view.attributes
	}
	first := hit{rule: n}
	if hits := readings.hitsOf(n, false); len(hits) > 0 {
		first = hits[0]
	}
	return readings.with(ev.view.attributes, readings.countedPath(first.path, rule.Match.IgnoreCase), readings.methods[first.method])
}

// remarks returns what is unusual about how a rule applies.
func (ev *evaluation) remarks(lookup *exceptionLookup, n int32, missing string) []string {
	var remarks []string
	counter := ev.set.rules[n].counter
	rule := &ev.set.rules[counter]
	if counter != n {
		remarks = append(remarks, fmt.Sprintf("charges the counters of rule %q", rule.ID))
	}
	contributions := ev.contributionsTo(counter)
	for _, c := range contributions {
		if highest := &contributions[0]; c.rule == n && c.cost < highest.cost {
			remarks = append(remarks, fmt.Sprintf("charged at the cost of rule %q: %d instead of %d", ev.set.rules[highest.rule].ID, highest.cost, c.cost))
		}
	}
	switch {
	case missing != "" && rule.OnMissing == DenyMissing:
		remarks = append(remarks, "the request has no "+missing+", and on_missing is deny")
	case missing != "":
		remarks = append(remarks, "the request has no "+missing+": it is counted together with all requests that lack it")
	}
	subjects := 1
	for i, a := range ev.info {
		if a.rule != counter {
			continue
		}
		c := &ev.charges[i]
		if a.repeated {
			if a.limit == 0 && a.origin != FromCandidate {
				subjects++
			}
			continue
		}
		if c.Observe && a.origin != FromCandidate && a.limit == 0 {
			remarks = append(remarks, ev.whyObserved(rule))
		}
		if a.origin == FromTier {
			remarks = append(remarks, "limit of tier "+ev.view.values[slotTier])
		}
		if o, ok := lookup.override(c.Subject, rule.limits[a.limit].exception); ok && a.origin == FromOverride {
			remarks = append(remarks, "limit overridden"+expirySuffix(o.expires)+reasonSuffix(o.reason.Value()))
		}
	}
	if subjects > 1 {
		remarks = append(remarks, fmt.Sprintf("the request is ambiguous: it is counted as %d subjects, and this is one of them", subjects))
	}
	return remarks
}

// whyObserved returns why a rule is in shadow mode for this request.
func (ev *evaluation) whyObserved(rule *compiledRule) string {
	switch {
	case ev.set.mode == Shadow:
		return "shadow: all rules are in shadow mode"
	case rule.Mode == Shadow:
		return "shadow"
	}
	return fmt.Sprintf("shadow: the subject is not among the %d %% enforced", rule.EnforcePercent)
}

// expirySuffix returns " until TIME", or "" if the exception does not expire.
func expirySuffix(expires int64) string {
	if expires == 0 {
		return ""
	}
	return " until " + time.Unix(expires, 0).UTC().Format(time.RFC3339)
}

// reasonSuffix returns the reason in parentheses, or "".
func reasonSuffix(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// mismatch returns which condition does not hold.
func (r *compiledRule) mismatch(v *view) string {
	if r.Mode == Off {
		return "mode is off"
	}
	for i := range r.conditions {
		if c := &r.conditions[i]; !c.holds(v) {
			return c.mismatch(v.values[c.slot])
		}
	}
	return "when does not hold: " + r.When.Text
}

// mismatch returns why the condition does not hold for a value.
func (c *condition) mismatch(value string) string {
	p := &c.pattern
	switch {
	case p.Presence == Absent:
		return c.name + " is " + value + ", and must be absent"
	case value == "":
		return "the request has no " + c.name
	case slices.Contains(p.Not, value) || len(p.Values) == 0 && p.Prefix == "" && len(p.CIDR) == 0:
		return c.name + " is " + value + ", and must not be " + strings.Join(p.Not, " or ")
	}
	wanted := slices.Clone(p.Values)
	if p.Prefix != "" {
		wanted = append(wanted, p.Prefix+"…")
	}
	for _, n := range p.CIDR {
		wanted = append(wanted, n.String())
	}
	const maxShown = 5
	if len(wanted) > maxShown {
		wanted = append(wanted[:maxShown], fmt.Sprintf("one of %d others", len(wanted)-maxShown))
	}
	return c.name + " is " + value + ", not " + strings.Join(wanted, " or ")
}

// peek decides without charging. An additional charge on each subject that can never fit prevents all others from being recorded,
// on every shard of the store, without changing their results.
func (ev *evaluation) peek(ctx context.Context, store Store) (Decision, error) {
	if len(ev.charges) == 0 || ev.denied {
		return ev.decide(ctx, store), nil
	}
	limit := PerSecond(1)
	veto := Charge{Counter: CounterOf("", "veto", limit.Algorithm), Limit: limit, Cost: MaxCost, Strict: true}
	charges := slices.Clone(ev.charges)
	for i := range charges {
		charges[i].Strict = true
	}
	for _, k := range ev.subjects { // includes every subject that is charged
		veto.Subject, veto.Regions = k.subject, EachRegion
		charges = append(charges, veto)
		if ev.hasHome(k.subject) {
			veto.Regions = HomeRegion
			charges = append(charges, veto)
		}
	}
	results := make([]Result, len(charges))
	err := take(ctx, store, charges, results)
	copy(ev.results, results)
	if err != nil {
		ev.fail(ctx, store)
	}
	return ev.decision(ev.path()), err
}

// hasHome reports whether a charge on the subject is decided by the subject's home region.
func (ev *evaluation) hasHome(subject Subject) bool {
	return slices.ContainsFunc(ev.charges, func(c Charge) bool { return c.Regions == HomeRegion && c.Subject == subject })
}
