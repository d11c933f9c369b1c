package headgate

import "time"

// Decide is the specification of one call to a store: all charges of a request, granted together or not at all.
// states[i] is the state of charges[i]'s counter; several charges on one counter apply in order and use the state of the
// first of them. Afterwards the states are what a store must keep, and results say what became of each charge; Decide
// reports whether the request is admitted. It may write behind the end of a state's Log, as append does.
//
// A store keeps each hold beside its counter, under the number in its receipt, until it ends or is released. Of a charge
// that releases one, states[i].Hold is what the store has under that number, also if another charge on the counter came
// before; the store deletes it, whatever Decide reports.
//
// Every charge is judged even after one was denied. If any enforcing charge does not fit, none of them is recorded, and
// an observing charge only if no other counter than its twin denied. Refunds, credits, releases and forced charges are
// recorded in any case.
func Decide(charges []Charge, states []State, results []Result, now time.Time) bool {
	return decide(charges, states, results, micros(now), false)
}

// DecideDenied is Decide for charges whose request was denied elsewhere: it judges them and records only what is recorded in
// any case.
func DecideDenied(charges []Charge, states []State, results []Result, now time.Time) {
	decide(charges, states, results, micros(now), true)
}

func decide(charges []Charge, states []State, results []Result, now int64, denied bool) bool {
	if len(charges) == 1 && !denied { // nothing to undo
		c := &charges[0]
		c.take(&states[0], &results[0], now, true)
		return results[0].Allowed || !c.enforces()
	}
	var stateRoom [8]State
	var indexRoom [8]int32
	before := append(stateRoom[:0], states...)
	first := firsts(charges, indexRoom[:0])
	deniers := 0
	undo := denied
	for i := range charges {
		c := &charges[i]
		takeIn(charges, states, first, i, &results[i], now, true)
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
	denier := soleDenier(charges, results, first)
	copy(states, before)
	for i := range charges {
		c := &charges[i]
		judged := results[i]
		record := c.always() || c.Observe && judged.Allowed && !denied && denier != nil && denier.Subject == c.Subject && denier.Counter == c.Twin
		takeIn(charges, states, first, i, &results[i], now, record)
		results[i].Allowed, results[i].RetryAfter, results[i].Delay = judged.Allowed, judged.RetryAfter, judged.Delay
	}
	return false
}

// takeIn takes charge i in the state of the first charge on its counter.
func takeIn(charges []Charge, states []State, first []int32, i int, r *Result, now int64, record bool) {
	c, s := &charges[i], &states[first[i]]
	hold := states[i].Hold // it is its own, not the counter's
	s.Hold = Hold{}
	if c.releases() && !released(charges[:i], first, i, c.Release.Mark) {
		s.Hold = hold
	}
	c.take(s, r, now, record)
	s.Hold = Hold{}
}

// released reports whether one of the charges before charge i has released the same hold.
func released(before []Charge, first []int32, i int, number int64) bool {
	for j := range before {
		if first[j] == first[i] && before[j].Release.Mark == number && before[j].releases() {
			return true
		}
	}
	return false
}

// soleDenier returns the first charge on the only counter that denies, or nil if there are several.
func soleDenier(charges []Charge, results []Result, first []int32) *Charge {
	denier := int32(-1)
	for i := range charges {
		switch c := &charges[i]; {
		case !c.enforces() || results[i].Allowed || first[i] == denier:
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

// manyCharges is from how many on it is worth a map to find those on the same counter.
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
