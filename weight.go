package headgate

import "fmt"

// MaxWeight is how much a store decides in one step; see Limit.Weight.
const MaxWeight = 64

// Weight returns how much work a charge on the limit is at most for a store, in charges on a bucket: a log takes more. What
// weighs up to MaxWeight together is decided in one step where one server holds it. A store that decides elsewhere makes
// several steps of what is heavier, and gives back what the others recorded if one denies.
func (l Limit) Weight() int {
	switch {
	case l.Algorithm != SlidingLog:
		return 1
	case l.Count <= denseLog:
		return 8
	default:
		return 16
	}
}

// Weight returns how much the limits of charges weigh together.
func Weight(charges []Charge) (sum int) {
	for i := range charges {
		sum += charges[i].Limit.Weight()
	}
	return sum
}

// weights explains the weight of limits in errors.
const weights = "a limit weighs 1, a sliding_log 8, or 16 if it is above 128; a candidate weighs as much again, and so does overdraw"

// Weight returns how much work one request is at most for a store because of the rule: the sum over its limits, as Limit.Weight
// has it. A candidate and overdraw make a limit heavier. Compile rejects a rule of more than MaxWeight.
func (r Rule) Weight() int {
	c := compiledRule{Rule: r}
	c.compileLimits()
	return c.weight()
}

// weight returns how much the charges of one request weigh together at most.
func (r *compiledRule) weight() int {
	sum := 0
	for i := range r.limits {
		l := &r.limits[i]
		most := l.limit.Weight()
		for _, tier := range l.tiers {
			most = max(most, tier.Weight())
		}
		if r.Overdraw {
			most *= 2
		}
		if sum += most; l.hasCandidate {
			sum += l.candidate.Weight()
		}
	}
	return sum
}

// tooHeavy finds rules that together charge every request with more than a store decides in one step.
func (s *RuleSet) tooHeavy() []error {
	sum := 0
	for i := range s.rules {
		if r := &s.rules[i]; r.always() {
			if sum += r.weight(); sum > MaxWeight {
				return []error{&RuleError{i, r.ID, nil, fmt.Sprintf(
					"matches every request, as others before it, and their limits weigh %d together; a request is charged on at most %d in one step (%s): "+
						"add a match to some of them", sum, MaxWeight, weights), -1}}
			}
		}
	}
	return nil
}
