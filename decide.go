package headgate

import "time"

// Decide decides all charges of one request, granting them together or not at all, and reports whether the request is allowed. It
// is the specification of one call to a store. states[i] is the state of charges[i]'s counter; several charges on one counter
// apply in order and use the state of the first of them. Decide sets states to what the store must keep and results[i] to the
// result of charges[i]. It may write past the end of a state's Log, as append does.
//
// A store keeps each hold next to its counter, under the number in its receipt, until the hold expires or is released. For a
// charge that releases a hold, states[i].Hold is what the store keeps under that number, even if another charge on the counter
// precedes it; the store deletes it, whether or not Decide allows the request.
//
// Every charge is decided, even after one was denied. If an enforcing charge does not fit, no ordinary charge is recorded, and an
// observing charge is recorded only if no other counter than its twin denied. Refunds, credits, releases, forced charges and SetSlots
// are always recorded.
func Decide(charges []Charge, states []State, results []Result, now time.Time) bool {
	return decide(charges, states, results, micros(now), false)
}

// DecideDenied decides charges as Decide does, for a request that was denied elsewhere: it records only what is always recorded.
func DecideDenied(charges []Charge, states []State, results []Result, now time.Time) {
	decide(charges, states, results, micros(now), true)
}

func decide(charges []Charge, states []State, results []Result, now int64, denied bool) bool {
	if len(charges) == 1 && !denied { // nothing to undo
		c := &charges[0]
		c.take(&states[0], &results[0], now, true)
		return results[0].Allowed || !c.Enforces()
	}
	var stateBuffer [8]State
	var indexBuffer [8]int32
	before := append(stateBuffer[:0], states...)
	first := firsts(charges, indexBuffer[:0])
	deniers := 0
	undo := denied
	for i := range charges {
		c := &charges[i]
		takeIn(charges, states, first, i, &results[i], now, true)
		if c.Enforces() && !results[i].Allowed {
			deniers++
		}
	}
	if deniers == 0 && !denied {
		return true
	}
	for i := range charges {
		undo = undo || results[i].Granted > 0 && !charges[i].Always()
	}
	if !undo {
		return false
	}
	denier := soleDenier(charges, results, first)
	copy(states, before)
	for i := range charges {
		c := &charges[i]
		decided := results[i]
		record := c.Always() || c.Observe && decided.Allowed && !denied && denier != nil && denier.Subject == c.Subject && denier.Counter == c.Twin
		takeIn(charges, states, first, i, &results[i], now, record)
		results[i].Allowed, results[i].RetryAfter, results[i].Delay = decided.Allowed, decided.RetryAfter, decided.Delay
	}
	return false
}

// takeIn applies charge i to the state of the first charge on its counter.
func takeIn(charges []Charge, states []State, first []int32, i int, r *Result, now int64, record bool) {
	c, s := &charges[i], &states[first[i]]
	hold := states[i].Hold // belongs to the charge, not to the counter
	s.Hold = Hold{}
	if c.releases() && !released(charges[:i], first, i, c.Release.Mark) {
		s.Hold = hold
	}
	c.take(s, r, now, record)
	s.Hold = Hold{}
}

// released reports whether a charge before charge i has released the same hold.
func released(before []Charge, first []int32, i int, number int64) bool {
	for j := range before {
		if first[j] == first[i] && before[j].Release.Mark == number && before[j].releases() {
			return true
		}
	}
	return false
}

// soleDenier returns the first charge on the only counter that denies, or nil unless exactly one counter denies.
func soleDenier(charges []Charge, results []Result, first []int32) *Charge {
	denier := int32(-1)
	for i := range charges {
		switch c := &charges[i]; {
		case !c.Enforces() || results[i].Allowed || first[i] == denier:
		case denier >= 0:
			return nil
		default:
			denier = first[i]
		}
	}
	if denier < 0 {
		return nil
	}
	return &charges[denier]
}

// manyCharges is the number of charges above which a map finds those on the same counter faster than a scan.
const manyCharges = 16

// firsts appends, for each charge, the index of the first charge on the same counter.
func firsts(charges []Charge, to []int32) []int32 {
	if len(charges) > manyCharges {
		return firstsOfMany(charges, to)
	}
	for i := range charges {
		to = append(to, int32(IndexCharge(charges, charges[i].Subject, charges[i].Counter)))
	}
	return to
}

// firstsOfMany appends as firsts does, in linear time.
func firstsOfMany(charges []Charge, to []int32) []int32 {
	type counter struct {
		subject Subject
		counter Counter
	}
	known := make(map[counter]int32, len(charges))
	for i := range charges {
		k := counter{charges[i].Subject, charges[i].Counter}
		j, ok := known[k]
		if !ok {
			j = int32(i)
			known[k] = j
		}
		to = append(to, j)
	}
	return to
}
