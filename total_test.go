package headgate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// wild is any number, most often one at which something overflows.
func (t *tape) wild() int64 {
	n := pick(t, 0, 1, -1, 7, 1_000, 1_000_000, headgate.MaxCost, headgate.MaxCost+1, 1<<52, 1<<53, 1_700_000_000, 1_700_000_000_000_000,
		4_000_000_000_000_000, math.MaxInt64/1_000_000, math.MaxInt64, math.MinInt64, t.number(math.MaxInt64-1), -t.number(math.MaxInt64-1))
	return n + pick(t, int64(0), 0, 0, 1, -1, 3)
}

// take makes a charge of which nothing needs to make sense, and says what Take did wrong besides panicking.
func (t *tape) take() (err error) {
	limit := headgate.Limit{
		Algorithm: headgate.Algorithm(t.below(6)),
		Count:     t.wild(),
		Window:    time.Duration(t.wild()),
		Burst:     t.wild(),
		Align:     headgate.Align(t.below(4)),
		Calendar:  headgate.Calendar(t.below(7)),
		AnchorDay: int(t.wild()),
	}
	if t.below(8) > 0 { // mostly a valid one, which gets further
		limit = t.limit(oddZones())
	}
	charge := headgate.Charge{
		Cost: t.wild(), AtLeast: t.wild(), MaxDelay: time.Duration(t.wild()), Observe: t.below(2) == 0, Twin: headgate.Counter(t.wild()),
	}
	if t.below(3) == 0 {
		charge.Refund = headgate.Receipt{Units: t.wild(), Mark: t.wild(), Time: t.wild()}
	}
	if t.below(4) == 0 {
		charge.Hold = time.Duration(t.wild())
	}
	if t.below(3) == 0 {
		charge.Release = headgate.Receipt{Units: t.wild(), Mark: t.wild(), Time: t.wild()}
	}
	if t.below(2) == 0 {
		charge.Cost = 1 + t.number(max(0, limit.Count-1))
	}
	now := t.wild()
	state := headgate.State{Time: pick(t, now, t.wild()), Used: t.wild(), Prev: pick(t, 0, t.wild()), Expires: pick(t, now/1_000_000+1_000, t.wild())}
	state.Credited, state.LastHold, state.Hold = t.wild(), t.wild(), headgate.Hold{Units: t.wild(), End: t.wild()}
	for range t.below(4) {
		state.Log = append(state.Log, headgate.LogEntry{Time: t.wild(), Units: uint32(t.wild()), Count: uint32(t.wild())})
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
		return what("admitted something, though the limit is not valid")
	}
	return nil
}

// Take has an answer to everything: also to limits that are not valid, and to states that no charge could have left.
func TestTakeIsTotal(t *testing.T) {
	t.Parallel()
	const cases, seed = 150_000, 1
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range cases {
		choices := randomTape(rng, 32)
		if err := choices.take(); err != nil {
			t.Fatalf("seed %d, case %d: %v", seed, i, err)
		}
	}
}

func FuzzTakeTotal(f *testing.F) {
	rng := rand.New(rand.NewPCG(2, 0))
	for range 20 {
		f.Add([]byte(randomTape(rng, 32)))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		wild := tape(choices)
		if err := wild.take(); err != nil {
			t.Fatal(err)
		}
	})
}
