package headgate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// The counters of these tests are windows of a minute, so that a state's Used is what was charged. Counters are named by letters;
// the counters of one request are on one subject.
const (
	counterA headgate.Counter = 'a' + iota
	counterB
	counterC
)

func perMinute(counter headgate.Counter, count, cost int64) headgate.Charge {
	return headgate.Charge{
		Subject: headgate.SubjectOf("alice"),
		Counter: counter,
		Limit:   headgate.Limit{Algorithm: headgate.FixedWindow, Count: count, Window: time.Minute},
		Cost:    cost,
	}
}

func observing(c headgate.Charge, twin headgate.Counter) headgate.Charge {
	c.Observe, c.Twin = true, twin
	return c
}

func partial(c headgate.Charge, atLeast int64) headgate.Charge {
	c.AtLeast = atLeast
	return c
}

// refunding returns a refund of units that are in the window when a test begins.
func refunding(c headgate.Charge, units int64) headgate.Charge {
	c.Refund = headgate.Receipt{Units: units, Mark: decideTime.UnixMicro(), Time: decideTime.UnixMicro()}
	return c
}

var decideTime = time.Date(2025, 8, 1, 12, 0, 0, 0, time.UTC)

// used returns the state of a window with used units.
func used(units int64) headgate.State {
	c := perMinute(counterA, units, units)
	s, _ := c.Limit.Take(headgate.State{}, c, decideTime)
	return s
}

// verdicts formats results: yes or no, granted, remaining.
func verdicts(results []headgate.Result) string {
	var words []string
	for _, r := range results {
		verdict := "no"
		if r.Allowed {
			verdict = "yes"
		}
		words = append(words, fmt.Sprintf("%s %d/%d", verdict, r.Granted, r.Remaining))
	}
	return strings.Join(words, ", ")
}

func usedUnits(states []headgate.State) []int64 {
	var units []int64
	for _, s := range states {
		units = append(units, s.Used)
	}
	return units
}

func TestDecide(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		charges  []headgate.Charge
		used     []int64 // before
		allowed  bool
		verdicts string
		want     []int64 // used after
	}{
		{
			name:    "all fit",
			charges: []headgate.Charge{perMinute(counterA, 10, 2), perMinute(counterB, 5, 1)},
			used:    []int64{0, 0}, allowed: true, verdicts: "yes 2/8, yes 1/4", want: []int64{2, 1},
		},
		{
			name:    "the last does not fit: none is recorded, all are decided",
			charges: []headgate.Charge{perMinute(counterA, 10, 2), perMinute(counterB, 5, 1), perMinute(counterC, 3, 1)},
			used:    []int64{4, 0, 3}, allowed: false, verdicts: "yes 0/6, yes 0/5, no 0/0", want: []int64{4, 0, 3},
		},
		{
			name:    "the first does not fit: the others are still decided",
			charges: []headgate.Charge{perMinute(counterA, 3, 1), perMinute(counterB, 5, 1), perMinute(counterC, 3, 9)},
			used:    []int64{3, 1, 0}, allowed: false, verdicts: "no 0/0, yes 0/4, no 0/3", want: []int64{3, 1, 0},
		},
		{
			name:    "a partial charge takes what is left",
			charges: []headgate.Charge{partial(perMinute(counterA, 10, 8), 1), perMinute(counterB, 5, 1)},
			used:    []int64{7, 0}, allowed: true, verdicts: "yes 3/0, yes 1/4", want: []int64{10, 1},
		},
		{
			name:    "a partial charge that was denied is undone",
			charges: []headgate.Charge{partial(perMinute(counterA, 10, 8), 1), perMinute(counterB, 5, 1)},
			used:    []int64{7, 5}, allowed: false, verdicts: "yes 0/3, no 0/0", want: []int64{7, 5},
		},
		{
			name:    "two charges on one counter, in order",
			charges: []headgate.Charge{perMinute(counterA, 10, 6), perMinute(counterA, 10, 4)},
			used:    []int64{0, 0}, allowed: true, verdicts: "yes 6/4, yes 4/0", want: []int64{10, 0},
		},
		{
			name:    "two charges on one counter that fit only individually",
			charges: []headgate.Charge{perMinute(counterA, 10, 6), perMinute(counterA, 10, 5)},
			used:    []int64{0, 0}, allowed: false, verdicts: "yes 0/10, no 0/10", want: []int64{0, 0},
		},
		{
			name:    "a peek denies and records nothing",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), perMinute(counterB, 5, 0)},
			used:    []int64{0, 5}, allowed: false, verdicts: "yes 0/10, no 0/0", want: []int64{0, 5},
		},
		{
			name:    "a peek that fits records nothing",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), perMinute(counterB, 5, 0)},
			used:    []int64{0, 4}, allowed: true, verdicts: "yes 1/9, yes 0/1", want: []int64{1, 4},
		},

		{
			name:    "an observing charge that fits is recorded",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 5, 1), 0)},
			used:    []int64{0, 0}, allowed: true, verdicts: "yes 1/9, yes 1/4", want: []int64{1, 1},
		},
		{
			name:    "an observing charge that does not fit denies nothing",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 5, 1), 0)},
			used:    []int64{0, 5}, allowed: true, verdicts: "yes 1/9, no 0/0", want: []int64{1, 5},
		},
		{
			name:    "a single observing charge that does not fit",
			charges: []headgate.Charge{observing(perMinute(counterA, 5, 1), 0)},
			used:    []int64{5}, allowed: true, verdicts: "no 0/0", want: []int64{5},
		},
		{
			name:    "an observing charge does not record a denied request",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 5, 1), 0)},
			used:    []int64{10, 0}, allowed: false, verdicts: "no 0/0, yes 0/5", want: []int64{10, 0},
		},
		{
			name:    "an observing charge before the denial does not record it",
			charges: []headgate.Charge{observing(perMinute(counterB, 5, 1), 0), perMinute(counterA, 10, 1)},
			used:    []int64{0, 10}, allowed: false, verdicts: "yes 0/5, no 0/0", want: []int64{0, 10},
		},
		{
			name:    "a candidate records what its twin denied",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 20, 1), counterA)},
			used:    []int64{10, 10}, allowed: false, verdicts: "no 0/0, yes 1/9", want: []int64{10, 11},
		},
		{
			name:    "a candidate before its twin records what the twin denied",
			charges: []headgate.Charge{observing(perMinute(counterB, 20, 1), counterA), perMinute(counterA, 10, 1)},
			used:    []int64{10, 10}, allowed: false, verdicts: "yes 1/9, no 0/0", want: []int64{11, 10},
		},
		{
			name:    "a candidate and its twin do not fit",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 5, 1), counterA)},
			used:    []int64{10, 5}, allowed: false, verdicts: "no 0/0, no 0/0", want: []int64{10, 5},
		},
		{
			name:    "a candidate does not record what its twin and another denied",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 20, 1), counterA), perMinute(counterC, 3, 1)},
			used:    []int64{10, 10, 3}, allowed: false, verdicts: "no 0/0, yes 0/10, no 0/0", want: []int64{10, 10, 3},
		},
		{
			name:    "a candidate does not record what another denied",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 20, 1), counterA), perMinute(counterC, 3, 1)},
			used:    []int64{0, 0, 3}, allowed: false, verdicts: "yes 0/10, yes 0/20, no 0/0", want: []int64{0, 0, 3},
		},
		{
			name:    "an observing charge that does not fit does not affect another",
			charges: []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 20, 1), 0), observing(perMinute(counterC, 3, 1), 0)},
			used:    []int64{0, 0, 3}, allowed: true, verdicts: "yes 1/9, yes 1/19, no 0/0", want: []int64{1, 1, 3},
		},

		{
			name:    "a refund and a charge",
			charges: []headgate.Charge{refunding(perMinute(counterA, 10, 4), 4), perMinute(counterB, 5, 1)},
			used:    []int64{6, 0}, allowed: true, verdicts: "yes 4/8, yes 1/4", want: []int64{2, 1},
		},
		{
			name:    "a refund is recorded in a denied call",
			charges: []headgate.Charge{refunding(perMinute(counterA, 10, 4), 4), perMinute(counterB, 5, 1)},
			used:    []int64{6, 5}, allowed: false, verdicts: "yes 4/8, no 0/0", want: []int64{2, 5},
		},
		{
			name:    "a refund is recorded once although others are undone",
			charges: []headgate.Charge{perMinute(counterC, 3, 1), refunding(perMinute(counterA, 10, 4), 4), perMinute(counterB, 5, 1)},
			used:    []int64{0, 6, 5}, allowed: false, verdicts: "yes 0/3, yes 4/8, no 0/0", want: []int64{0, 2, 5},
		},
		{
			name:    "refunded units are available to the next charge on the counter",
			charges: []headgate.Charge{refunding(perMinute(counterA, 10, 4), 4), perMinute(counterA, 10, 3)},
			used:    []int64{10, 0}, allowed: true, verdicts: "yes 4/4, yes 3/1", want: []int64{9, 0},
		},
		{
			name:    "a refund stays recorded if the charge that used it is undone",
			charges: []headgate.Charge{refunding(perMinute(counterA, 10, 4), 4), perMinute(counterA, 10, 3), perMinute(counterB, 5, 1)},
			used:    []int64{10, 0, 5}, allowed: false, verdicts: "yes 4/4, yes 0/4, no 0/0", want: []int64{6, 0, 5},
		},
		{
			name:    "a refund gives back no more than its receipt",
			charges: []headgate.Charge{refunding(perMinute(counterA, 10, 9), 4)},
			used:    []int64{10}, allowed: true, verdicts: "yes 4/4", want: []int64{6},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			states := statesOf(test.used)
			results := make([]headgate.Result, len(test.charges))
			allowed := headgate.Decide(test.charges, states, results, decideTime)
			if allowed != test.allowed || verdicts(results) != test.verdicts || !slices.Equal(usedUnits(states), test.want) {
				t.Errorf("allowed %v: %s, used %v\nwant     %v: %s, used %v",
					allowed, verdicts(results), usedUnits(states), test.allowed, test.verdicts, test.want)
			}
			checkInvariants(t, results)
		})
	}
}

func statesOf(units []int64) []headgate.State {
	states := make([]headgate.State, len(units))
	for i, n := range units {
		if n > 0 {
			states[i] = used(n)
		}
	}
	return states
}

// checkInvariants checks that the fields of every result are consistent.
func checkInvariants(t *testing.T, results []headgate.Result) {
	t.Helper()
	for i, r := range results {
		if r.Allowed != (r.RetryAfter == 0) {
			t.Errorf("charge %d: allowed %v, retry after %v", i, r.Allowed, r.RetryAfter)
		}
		if r.Receipt.Units != 0 && r.Receipt.Units != r.Granted {
			t.Errorf("charge %d: granted %d with a receipt for %d", i, r.Granted, r.Receipt.Units)
		}
		if !r.Time.Equal(decideTime) || r.Err != nil {
			t.Errorf("charge %d: decided at %v, error %v", i, r.Time, r.Err)
		}
	}
}

// TestDecideSeparatesSubjects checks that equal counters of different subjects are different counters.
func TestDecideSeparatesSubjects(t *testing.T) {
	t.Parallel()
	charges := []headgate.Charge{perMinute(counterA, 10, 6), perMinute(counterA, 10, 6)}
	charges[1].Subject = headgate.SubjectOf("bob")
	states, results := make([]headgate.State, 2), make([]headgate.Result, 2)
	if !headgate.Decide(charges, states, results, decideTime) || states[0].Used != 6 || states[1].Used != 6 {
		t.Errorf("%s, used %v", verdicts(results), usedUnits(states))
	}

	// A twin is on the same subject.
	charges = []headgate.Charge{perMinute(counterA, 10, 1), observing(perMinute(counterB, 20, 1), counterA)}
	charges[0].Subject = headgate.SubjectOf("bob")
	states = statesOf([]int64{10, 10})
	if headgate.Decide(charges, states, results, decideTime) || states[1].Used != 10 {
		t.Errorf("denied by a twin of another subject: %s, used %v", verdicts(results), usedUnits(states))
	}
}

// TestDecideManyCharges has more charges than Decide's buffers on the stack.
func TestDecideManyCharges(t *testing.T) {
	t.Parallel()
	for _, n := range []int{7, 8, 9, 40} {
		for _, full := range []int{-1, 0, n / 2, n - 1} {
			charges, states, results := make([]headgate.Charge, n), make([]headgate.State, n), make([]headgate.Result, n)
			for i := range charges {
				charges[i], states[i] = perMinute(headgate.Counter(i), 10, 2), used(3)
				if i == full {
					states[i] = used(9)
				}
			}
			before := usedUnits(states)
			if allowed := headgate.Decide(charges, states, results, decideTime); allowed != (full < 0) {
				t.Errorf("%d charges, number %d does not fit: allowed %v", n, full, allowed)
			}
			for i, s := range states {
				if full >= 0 && s.Used != before[i] || full < 0 && s.Used != 5 {
					t.Errorf("%d charges, number %d does not fit: number %d used %d", n, full, i, s.Used)
				}
				if results[i].Allowed == (i == full) {
					t.Errorf("%d charges, number %d does not fit: number %d allowed %v", n, full, i, results[i].Allowed)
				}
			}
		}
	}
}

// TestDecideUndoesALog checks that a denied call does not change logs, although its first pass wrote into them.
func TestDecideUndoesALog(t *testing.T) {
	t.Parallel()
	c := headgate.Charge{Counter: counterA, Limit: headgate.Limit{Algorithm: headgate.SlidingLog, Count: 10, Window: time.Minute}, Cost: 2}
	s, _ := c.Limit.Take(headgate.State{}, c, decideTime)
	charges := []headgate.Charge{c, perMinute(counterB, 1, 1)}
	states, results := []headgate.State{s, used(1)}, make([]headgate.Result, 2)
	entries := slices.Clone(s.Log)
	if headgate.Decide(charges, states, results, decideTime.Add(time.Second)) {
		t.Fatal("allowed")
	}
	if !slices.Equal(states[0].Log, entries) || !slices.Equal(s.Log, entries) || states[0].Used != 2 {
		t.Errorf("log %v, want %v", states[0].Log, entries)
	}
}

func TestDecideDenied(t *testing.T) {
	t.Parallel()
	charges := []headgate.Charge{
		perMinute(counterA, 10, 2),
		perMinute(counterB, 5, 1),
		observing(perMinute(counterC, 5, 1), 0),
		refunding(perMinute('d', 10, 4), 4),
		observing(perMinute('e', 20, 1), counterB),
		perMinute('f', 5, 0),
	}
	states, results := statesOf([]int64{4, 5, 0, 6, 0, 1}), make([]headgate.Result, len(charges))
	headgate.DecideDenied(charges, states, results, decideTime)
	const words = "yes 0/6, no 0/0, yes 0/5, yes 4/8, yes 0/20, yes 0/4"
	if want := []int64{4, 5, 0, 2, 0, 1}; verdicts(results) != words || !slices.Equal(usedUnits(states), want) {
		t.Errorf("%s, used %v\nwant %s, used %v", verdicts(results), usedUnits(states), words, want)
	}
	checkInvariants(t, results)
}

// TestDecideReturnsDelaysOfDeniedRequest checks that the charges of a denied request on a leaky bucket return their delays, one after
// the other, and are not queued.
func TestDecideReturnsDelaysOfDeniedRequest(t *testing.T) {
	t.Parallel()
	leaky := headgate.Charge{
		Counter: counterA, Cost: 1, MaxDelay: time.Minute,
		Limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 6, Window: time.Minute},
	}
	queued, _ := leaky.Limit.Take(headgate.State{}, leaky, decideTime)
	states, results := []headgate.State{queued, {}, used(1)}, make([]headgate.Result, 3)
	if headgate.Decide([]headgate.Charge{leaky, leaky, perMinute(counterB, 1, 1)}, states, results, decideTime) {
		t.Fatal("allowed")
	}
	if results[0].Delay != 10*time.Second || results[1].Delay != 20*time.Second {
		t.Errorf("delays of %v and %v, want 10s and 20s", results[0].Delay, results[1].Delay)
	}
	if results[0].Granted != 0 || results[1].Granted != 0 || !sameState(states[0], queued) {
		t.Errorf("%s, state %+v", verdicts(results), states[0])
	}
}
