package headgate

import "fmt"

// MaxWeight is the largest weight that a store decides in one step; see Limit.Weight.
const MaxWeight = 64

// Weight returns the largest amount of work of a charge on the limit for a store, relative to a charge on a bucket: a sliding log
// and a concurrency limit take more. Charges with a total weight of up to MaxWeight on one server are decided in one step. A store that decides on a
// remote server splits heavier calls into several steps, and refunds the other steps if one of them denies.
func (l Limit) Weight() int {
	switch {
	case l.Algorithm == Concurrency:
		return 8
	case l.Algorithm != SlidingLog:
		return 1
	case l.Count <= denseLog:
		return 8
	default:
		return 16
	}
}

// Weight returns the total weight of the limits of charges.
func Weight(charges []Charge) (sum int) {
	for i := range charges {
		sum += charges[i].Limit.Weight()
	}
	return sum
}

// weights explains the weight of limits in errors.
const weights = "a limit weighs 1, a concurrency limit 8, a sliding_log 8, or 16 above a count of 128; a candidate or overdraw adds as much again"

// Weight returns the largest total weight of the rule's charges for one request: the sum of Limit.Weight over its limits, including
// candidates and overdraw. Compile rejects a rule with a weight above MaxWeight. A rule with Counter adds nothing to the weight of the
// rule whose counters it charges, so that its own weight is 0.
func (r Rule) Weight() int {
	c := compiledRule{Rule: r}
	c.compileLimits()
	return c.weight()
}

// weight returns the largest total weight of the charges of one request.
func (r *compiledRule) weight() int {
	sum := 0
	for i := range r.limits {
		l := &r.limits[i]
		heaviest := l.limit.Weight()
		for _, tier := range l.tiers {
			heaviest = max(heaviest, tier.Weight())
		}
		if r.Overdraw {
			heaviest *= 2
		}
		if sum += heaviest; l.hasCandidate {
			sum += l.candidate.Weight()
		}
	}
	return sum
}

// checkWeight rejects rules that together charge every request with more than a store decides in one step.
func (s *RuleSet) checkWeight() []error {
	sum := 0
	counted := make([]bool, len(s.rules)) // the rules whose counters are charged
	for i := range s.rules {
		if r := &s.rules[i]; r.always() && !counted[r.counter] {
			counted[r.counter] = true
			if sum += s.rules[r.counter].weight(); sum > MaxWeight {
				return []error{&RuleError{i, r.ID, nil, fmt.Sprintf(
					"weight %d: the total of all rules that match every request must be at most %d, which a store decides in one step (%s): "+
						"add a match to some of them", sum, MaxWeight, weights), -1}}
			}
		}
	}
	return nil
}
