package headgate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Explanation is a decision with its reasons.
type Explanation struct {
	// Decision is what Check would have said. Nothing was charged: Remaining is what there is before the request.
	Decision Decision
	// Rules are all rules in force, in their order.
	Rules []RuleExplanation
}

// RuleExplanation says why a rule applies to a request or does not.
type RuleExplanation struct {
	Rule    Rule
	Applies bool
	// Why it does not apply; or what is special about how it does, often nothing.
	Why string
	// Subject is what the request is counted by, if the rule applies: {"ip": "192.0.2.1"}. What is missing is empty.
	Subject Attributes
}

// Explain says what Check would, and why, without charging anything; it looks at all rules, whatever Request.Rule is. The
// error is the store's if it did not answer.
func (l *Limiter) Explain(ctx context.Context, req Request) (Explanation, error) {
	ev, _ := l.evaluations.Get().(*evaluation)
	defer l.putBack(ev)
	set := l.rules.Load()
	req.Rule = ""
	_ = ev.prepare(l, set, req) // it fails only for such a rule
	e := Explanation{Rules: make([]RuleExplanation, len(set.rules))}
	if set.mode == Off {
		ev.view.look(set, req.Attributes) // else that was done
	}
	lookup := l.exceptions.lookup(ev.view.attributes)
	displaced := set.displaced(&ev.view)
	for i := range set.rules {
		e.Rules[i] = ev.explain(&lookup, int32(i), displaced)
	}
	var err error
	e.Decision, err = ev.judge(ctx, l.store)
	return e, err
}

// displaced has the rules whose conditions hold in some reading, and in each of them one that displaces the rule; it is -1 if
// there is a reading in which none does.
func (s *RuleSet) displaced(v *view) map[int32]int32 {
	by := map[int32]int32{}
	for p := range v.readings.paths {
		for m := range v.readings.methods {
			v.read(p, m)
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
	v.read(0, 0)
	return by
}

func (ev *evaluation) explain(lookup *exceptionLookup, n int32, displaced map[int32]int32) RuleExplanation {
	rule := &ev.set.rules[n]
	e := RuleExplanation{Rule: rule.Rule}
	if ev.set.mode == Off {
		e.Why = "all rules are off"
		return e
	}
	superior, matches := displaced[n]
	if !matches {
		e.Why = rule.mismatch(&ev.view)
		return e
	}
	if superior >= 0 {
		other := &ev.set.rules[superior]
		e.Why = fmt.Sprintf("rule %q has priority %d, above %d, and counts by the same", other.ID, other.Priority, rule.Priority)
		return e
	}
	if x, by := lookup.exemption(rule); by != "" {
		e.Why = "exempt by " + by + expiry(x.expires) + because(x.reason.Value())
		return e
	}
	e.Subject = Attributes{}
	missing := ""
	attributes := ev.countedFirst(n)
	for _, name := range ev.set.by[rule.by].resolve(attributes) {
		e.Subject[name] = attributes[name]
		if e.Subject[name] == "" {
			missing = name
		}
	}
	if missing != "" && rule.OnMissing == SkipMissing {
		e.Why, e.Subject = "the request has no "+missing+", and on_missing is skip", nil
		return e
	}
	e.Applies = true
	e.Why = strings.Join(ev.remarks(lookup, n, missing), "; ")
	return e
}

// countedFirst is the attributes that the first charge of a rule is made of.
func (ev *evaluation) countedFirst(n int32) Attributes {
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

// remarks are what is special about how a rule applies.
func (ev *evaluation) remarks(lookup *exceptionLookup, n int32, missing string) []string {
	var remarks []string
	rule := &ev.set.rules[n]
	switch {
	case missing != "" && rule.OnMissing == DenyMissing:
		remarks = append(remarks, "the request has no "+missing+", and on_missing is deny")
	case missing != "":
		remarks = append(remarks, "the request has no "+missing+": it is counted with all others that lack it")
	}
	subjects := 1
	for i, a := range ev.info {
		if a.rule != n {
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
			remarks = append(remarks, "limit overridden"+expiry(o.expires)+because(o.reason.Value()))
		}
	}
	if subjects > 1 {
		remarks = append(remarks, fmt.Sprintf("a server may read the request in several ways: it is counted as %d subjects, of which this is one", subjects))
	}
	return remarks
}

func (ev *evaluation) whyObserved(rule *compiledRule) string {
	switch {
	case ev.set.mode == Shadow:
		return "shadow: all rules are"
	case rule.Mode == Shadow:
		return "shadow"
	}
	return fmt.Sprintf("shadow for this subject, which is outside of the %d %% enforced", rule.EnforcePercent)
}

func expiry(expires int64) string {
	if expires == 0 {
		return ""
	}
	return " until " + time.Unix(expires, 0).UTC().Format(time.RFC3339)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// mismatch says which condition does not hold.
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
	const most = 5
	if len(wanted) > most {
		wanted = append(wanted[:most], fmt.Sprintf("one of %d others", len(wanted)-most))
	}
	return c.name + " is " + value + ", not " + strings.Join(wanted, " or ")
}

// judge is decide without a charge. A further charge on each subject that can never fit keeps all others from being
// recorded, on every part of the store, and leaves their verdicts alone.
func (ev *evaluation) judge(ctx context.Context, store Store) (Decision, error) {
	if len(ev.charges) == 0 || ev.denied {
		return ev.decide(ctx, store), nil
	}
	limit := PerSecond(1)
	veto := Charge{Counter: CounterOf("", "veto", limit.Algorithm), Limit: limit, Cost: MaxCost, Strict: true}
	charges := slices.Clone(ev.charges)
	for i := range charges {
		charges[i].Strict = true
	}
	for _, k := range ev.subjects { // every subject that is charged is among them
		veto.Subject = k.subject
		charges = append(charges, veto)
	}
	results := make([]Result, len(charges))
	err := take(ctx, store, charges, results)
	copy(ev.results, results)
	if err != nil {
		ev.fail(ctx, store)
	}
	return ev.sum(ev.path()), err
}
