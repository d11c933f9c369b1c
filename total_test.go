package headgate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// takeWild makes a charge with arbitrary values and returns an error if the result is inconsistent.
func takeWild(g generator) (err error) {
	limit := headgate.Limit{
		Algorithm: headgate.Algorithm(g.IntN(6)),
		Count:     g.wild(),
		Window:    time.Duration(g.wild()),
		Burst:     g.wild(),
		Align:     headgate.Align(g.IntN(4)),
		Calendar:  headgate.Calendar(g.IntN(7)),
		AnchorDay: int(g.wild()),
	}
	if g.IntN(8) > 0 { // mostly a valid one, which exercises more code
		limit = g.limit()
	}
	charge := headgate.Charge{
		Cost: g.wild(), AtLeast: g.wild(), MaxDelay: time.Duration(g.wild()), Observe: g.IntN(2) == 0, Twin: headgate.Counter(g.wild()),
	}
	if g.IntN(3) == 0 {
		charge.Refund = headgate.Receipt{Units: g.wild(), Mark: g.wild(), Time: g.wild()}
	}
	if g.IntN(4) == 0 {
		charge.Hold = time.Duration(g.wild())
	}
	if g.IntN(3) == 0 {
		charge.Release = headgate.Receipt{Units: g.wild(), Mark: g.wild(), Time: g.wild()}
	}
	if g.IntN(4) == 0 {
		charge.Credit, charge.Within = true, g.wild()
	}
	if g.IntN(4) == 0 {
		charge.Absent = g.wild()
	}
	if g.IntN(2) == 0 {
		charge.Cost = 1 + g.number(max(0, limit.Count-1))
	}
	now := g.wild()
	state := headgate.State{Time: oneOf(g, now, g.wild()), Used: g.wild(), Prev: oneOf(g, 0, g.wild()), Expires: oneOf(g, now/1_000_000+1_000, g.wild())}
	state.Credited, state.LastHold, state.Hold = g.wild(), g.wild(), headgate.Hold{Units: g.wild(), End: g.wild()}
	for range g.IntN(4) {
		state.Log = append(state.Log, headgate.LogEntry{Time: g.wild(), Units: uint32(g.wild()), Count: uint32(g.wild())})
	}

	what := func(did string) error {
		return fmt.Errorf("%+v.Take(%+v, %+v, UnixMicro(%d)) %s", limit, state, charge, now, did)
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = what(fmt.Sprintf("panicked: %v", cause))
		}
	}()
	log := slices.Clone(state.Log)
	next, result := limit.Take(state, charge, time.UnixMicro(now))
	again, same := limit.Take(state, charge, time.UnixMicro(now))
	switch {
	case !slices.Equal(state.Log, log):
		return what("wrote to the log")
	case result != same || !sameState(next, again):
		return what("is not always the same")
	case limit.Validate() != nil && (result.Allowed || result.RetryAfter != headgate.Never || !sameState(next, state)):
		return what("allowed something, though the limit is not valid")
	}
	return nil
}

// TestTakeIsTotal checks that Take returns a result for everything, even for invalid limits and impossible states.
func TestTakeIsTotal(t *testing.T) {
	t.Parallel()
	const cases, seed = 150_000, 1
	g := newGenerator(seed, 0)
	for i := range cases {
		if err := takeWild(g); err != nil {
			t.Fatalf("seed %d, case %d: %v", seed, i, err)
		}
	}
}

func FuzzTakeTotal(f *testing.F) {
	addChoices(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		if err := takeWild(fuzzed(choices)); err != nil {
			t.Fatal(err)
		}
	})
}
