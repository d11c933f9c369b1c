package headgate

import "time"

// Decide is the specification of one call to a store: all charges of a request, granted together or not at all.
// states[i] is the state of charges[i]'s counter; several charges on one counter apply in order and use the state of the
// first of them. Afterwards the states are what a store must keep, and results say what became of each charge; Decide
// reports whether the request is admitted.
//
// Every charge is judged even after one was refused. If any enforcing charge does not fit, none of them is recorded, and
// an observing charge only if no other counter than its twin refused. Refunds, credits, releases and forced charges are
// recorded in any case.
func Decide(charges []Charge, states []State, results []Result, now time.Time) bool {
	return decide(charges, states, results, micros(now), false)
}

// Withhold is Decide for charges whose request was refused elsewhere: it judges them and records only what is recorded in
// any case.
func Withhold(charges []Charge, states []State, results []Result, now time.Time) {
	decide(charges, states, results, micros(now), true)
}

func decide(charges []Charge, states []State, results []Result, now int64, denied bool) bool {
	if len(charges) == 1 && !denied { // nothing to undo
		c := &charges[0]
		c.take(&states[0], &results[0], now, true)
		return results[0].Allowed || !c.enforces()
	}
	var room [8]State
	before := append(room[:0], states...)
	deniers := 0
	undo := denied
	for i := range charges {
		c := &charges[i]
		c.take(&states[firstOn(charges, i)], &results[i], now, true)
		if c.enforces() && !results[i].Allowed {
			deniers++
		}
	}
	if deniers == 0 && !denied {
		return true
	}
	for i := range charges {
		undo = undo || results[i].Granted > 0 && !charges[i].always()
	}
	if !undo {
		return false
	}
	copy(states, before)
	for i := range charges {
		c := &charges[i]
		judged := results[i]
		record := c.always() || c.Observe && judged.Allowed && !denied && onlyTwinDenies(charges, results, c)
		c.take(&states[firstOn(charges, i)], &results[i], now, record)
		results[i].Allowed, results[i].RetryAfter, results[i].Delay = judged.Allowed, judged.RetryAfter, judged.Delay
	}
	return false
}

// onlyTwinDenies is true if every refusal came from the twin of an observing charge. The second pass overwrites results
// with the same verdicts, so it may be asked at any point.
func onlyTwinDenies(charges []Charge, results []Result, observer *Charge) bool {
	for i := range charges {
		c := &charges[i]
		if c.enforces() && !results[i].Allowed && (c.Subject != observer.Subject || c.Counter != observer.Twin) {
			return false
		}
	}
	return true
}

// firstOn is the index of the first charge on the same counter as charges[i].
func firstOn(charges []Charge, i int) int {
	for j := range i {
		if charges[j].Counter == charges[i].Counter && charges[j].Subject == charges[i].Subject {
			return j
		}
	}
	return i
}
