package headgate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// slotModel counts a concurrency limit without the shortcuts of Limit.Take: it drops expired holders at every step.
type slotModel map[uint64]*headgate.SlotHolder

func (m slotModel) used() (units int64) {
	for _, h := range m {
		units += h.Units
	}
	return units
}

// step applies an operation and returns whether it is allowed and how many units it moved.
func (m slotModel) step(c headgate.Charge, now int64) (allowed bool, granted int64) {
	for id, h := range m {
		if h.Until <= now {
			delete(m, id)
		}
	}
	lease := now + c.Limit.Window.Microseconds()
	h := m[c.Holder]
	switch {
	case c.Slots == headgate.ReleaseSlots && h == nil:
		return true, 0
	case c.Slots == headgate.ReleaseSlots:
		granted = min(c.Cost, h.Units)
		h.Units, h.Seq = h.Units-granted, max(h.Seq, c.Seq)
		if h.Units == 0 {
			h.Until = max(h.Until, lease)
		}
		return true, granted
	case c.Slots == headgate.SetSlots && h != nil && c.Seq <= h.Seq:
		return true, 0
	case c.Slots == headgate.AcquireSlots && m.used()+c.Cost > c.Limit.Count:
		return false, 0
	}
	if h == nil {
		h = &headgate.SlotHolder{ID: c.Holder}
		m[c.Holder] = h
	}
	if c.Slots == headgate.SetSlots {
		h.Units = 0
	}
	h.Units, h.Seq, h.Until = h.Units+c.Cost, max(h.Seq, c.Seq), max(h.Until, lease)
	return true, c.Cost
}

// TestSlotsAgainstModel compares random operations with a model. Take must not change the state that it is given, and must return the
// same result for a state in which other holders are only counted.
func TestSlotsAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: 12, Window: 10 * time.Second}
		m, s, now := slotModel{}, headgate.State{}, decideTime
		for step := range 400 {
			now = now.Add(time.Duration(random.Int64N(int64(3 * time.Second))))
			c := headgate.Charge{
				Limit: limit, Cost: 1 + random.Int64N(4), Holder: random.Uint64N(6), Seq: int64(step) - random.Int64N(4),
				Slots: headgate.SlotOp(random.IntN(3)),
			}
			before := slices.Clone(s.Holders)
			next, r := limit.Take(s, c, now)
			if !slices.Equal(before, s.Holders) {
				t.Fatalf("seed %d, step %d: Take changed its argument", seed, step)
			}
			if _, short := limit.Take(onlyOwn(s, c.Holder, now), c, now); short != r {
				t.Fatalf("seed %d, step %d: %+v\nof all holders %+v\nof its own     %+v", seed, step, c, r, short)
			}
			allowed, granted := m.step(c, now.UnixMicro())
			if s = next; r.Allowed != allowed || r.Granted != granted || r.Remaining != max(0, limit.Count-m.used()) {
				t.Fatalf("seed %d, step %d: %+v\ngot  %+v\nwant %v, %d granted, %d used", seed, step, c, r, allowed, granted, m.used())
			}
			if problem := compareHolders(s, m, now.UnixMicro()); problem != "" {
				t.Fatalf("seed %d, step %d: %+v: %s", seed, step, c, problem)
			}
		}
	}
}

// onlyOwn returns the state as a store passes it that does not decode other holders: without those that have expired, and with the
// others counted.
func onlyOwn(s headgate.State, own uint64, now time.Time) headgate.State {
	if s.Expires <= now.Unix() {
		return headgate.State{}
	}
	all := s.Holders
	if s.Holders = nil; s.Time <= now.UnixMicro() {
		s.Time = 0
	}
	for _, h := range all {
		switch {
		case h.Until <= now.UnixMicro():
			s.Used -= h.Units
			continue
		case h.ID == own:
			s.Holders = append(s.Holders, h)
		default:
			s.OtherHolders++
		}
		if s.Time == 0 || h.Until < s.Time {
			s.Time = h.Until
		}
	}
	return s
}

// compareHolders returns how a state differs from the model. It may have more holders: those that expired since it was last changed.
func compareHolders(s headgate.State, m slotModel, now int64) string {
	var used, latest int64
	for _, h := range s.Holders {
		used, latest = used+h.Units, max(latest, h.Until)
		if want := m[h.ID]; h.Until > now && (want == nil || *want != h) {
			return fmt.Sprintf("holder %+v, want %+v", h, want)
		}
		if h.Until < s.Time {
			return fmt.Sprintf("soonest %d, but a holder expires at %d", s.Time, h.Until)
		}
	}
	live := slices.DeleteFunc(slices.Clone(s.Holders), func(h headgate.SlotHolder) bool { return h.Until <= now })
	if used != s.Used || s.Expires*1_000_000 < latest || len(live) != len(m) {
		return fmt.Sprintf("%+v: %d used until %d; the model has %d holders, the state %d live ones", s, used, latest, len(m), len(live))
	}
	return ""
}

// TestSlotsFull fills the table of holders. A holder that is in it is not affected, and one that expires makes space.
func TestSlotsFull(t *testing.T) {
	t.Parallel()
	limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: headgate.MaxCost, Window: 10 * time.Second}
	var s headgate.State
	take := func(op headgate.SlotOp, holder uint64, cost int64, force bool, after time.Duration) (r headgate.Result) {
		c := headgate.Charge{Slots: op, Holder: holder, Cost: cost, Seq: int64(holder), Force: force}
		s, r = limit.Take(s, c, decideTime.Add(after))
		return r
	}
	for n := range uint64(headgate.MaxHolders) {
		after := time.Duration(0)
		if n > 0 {
			after = time.Second
		}
		if r := take(headgate.AcquireSlots, n, 1, false, after); !r.Allowed {
			t.Fatalf("holder %d: %+v", n, r)
		}
	}
	const one, more = 5, headgate.MaxHolders
	for name, r := range map[string]headgate.Result{
		"acquire": take(headgate.AcquireSlots, more, 1, false, time.Second),
		"peek":    take(headgate.AcquireSlots, more, 0, false, time.Second),
	} {
		if r.Allowed || r.RetryAfter != headgate.Unknown || r.Remaining != headgate.MaxCost-headgate.MaxHolders {
			t.Errorf("%s of one holder too many: %+v", name, r)
		}
	}
	for name, r := range map[string]headgate.Result{
		"set":   take(headgate.SetSlots, more, 3, false, time.Second),
		"force": take(headgate.AcquireSlots, more, 3, true, time.Second),
	} {
		if r.Granted != 0 || r.HolderUnits != 0 || len(s.Holders) != headgate.MaxHolders {
			t.Errorf("%s of one holder too many: %+v", name, r)
		}
	}
	if r := take(headgate.AcquireSlots, one, 1, false, time.Second); !r.Allowed || r.HolderUnits != 2 {
		t.Errorf("acquire by a known holder: %+v", r)
	}
	if r := take(headgate.AcquireSlots, more, 1, false, 10*time.Second); !r.Allowed {
		t.Errorf("denied although a holder has expired: %+v", r)
	}
}

// TestSlotsSaturate forces more units than can be counted.
func TestSlotsSaturate(t *testing.T) {
	t.Parallel()
	limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Minute}
	const maxUsed = 4_000_000_000
	var s headgate.State
	var r headgate.Result
	for n := range uint64(5) {
		s, r = limit.Take(s, headgate.Charge{Cost: headgate.MaxCost, Force: true, Holder: n % 2}, decideTime)
	}
	if s.Used != maxUsed || r.Granted != 0 || r.Remaining != 0 {
		t.Errorf("forced: used %d: %+v", s.Used, r)
	}
	s, r = limit.Take(s, headgate.Charge{Slots: headgate.SetSlots, Cost: headgate.MaxCost, Holder: 9, Seq: 1}, decideTime)
	if s.Used != maxUsed || r.Granted != 0 || len(s.Holders) != 3 {
		t.Errorf("set: used %d: %+v", s.Used, r)
	}
	s, r = limit.Take(s, headgate.Charge{Credit: true, Cost: headgate.MaxCost, Holder: 0}, decideTime)
	if r.Granted != maxUsed/2 || s.Used != maxUsed/2 {
		t.Errorf("credit of everything: used %d: %+v", s.Used, r)
	}
}

// TestSlotsUndo undoes acquires, as a store does if another shard denies.
func TestSlotsUndo(t *testing.T) {
	t.Parallel()
	c := headgate.Charge{
		Subject: headgate.SubjectOf("alice"), Counter: counterA, Cost: 2, Holder: 7, Seq: 3, Hold: time.Minute,
		Limit: headgate.Limit{Algorithm: headgate.Concurrency, Count: 3, Window: time.Minute},
	}
	if c.Holds() {
		t.Error("a concurrency limit holds units")
	}
	s, r := c.Limit.Take(headgate.State{}, c, decideTime)
	back, ok := c.Undo(&r)
	want := headgate.Charge{
		Subject: c.Subject, Counter: c.Counter, Limit: c.Limit, Cost: 2, Slots: headgate.ReleaseSlots, Holder: 7, Seq: 3,
	}
	if back != want || !ok || !r.Allowed || len(s.Log) > 0 {
		t.Errorf("undo of %+v is %+v", r, back)
	}
	if s, r = back.Limit.Take(s, back, decideTime); s.Used != 0 || r.Granted != 2 || r.HolderUnits != 0 {
		t.Errorf("undone: %+v", r)
	}
}

// TestOtherLimitsIgnoreSlots checks that the fields of concurrency limits have no effect on others.
func TestOtherLimitsIgnoreSlots(t *testing.T) {
	t.Parallel()
	for a := headgate.TokenBucket; a < headgate.Concurrency; a++ {
		c := headgate.Charge{Limit: headgate.Limit{Algorithm: a, Count: 3, Window: time.Minute}, Cost: 1}
		s, r := c.Limit.Take(headgate.State{}, c, decideTime)
		c.Slots, c.Holder, c.Seq = headgate.SetSlots, 7, 9
		s2, r2 := c.Limit.Take(headgate.State{}, c, decideTime)
		if s.Used != s2.Used || r != r2 {
			t.Errorf("%s: %+v, not %+v", a, r2, r)
		}
	}
}

// TestConcurrencyInRules checks what cannot be combined with concurrency limits, and that package-level Take does not accept them.
func TestConcurrencyInRules(t *testing.T) {
	t.Parallel()
	limit := headgate.Concurrent(20)
	for want, change := range map[string]func(*headgate.Rule){
		"overdraw: not supported with a concurrency limit, which counts requests in flight: remove one of them": func(r *headgate.Rule) { r.Overdraw = true },
		"max_caller_limit: not supported with a concurrency limit: remove one of them": func(r *headgate.Rule) {
			r.MaxCallerLimit = headgate.PerMinute(3)
		},
		"max_delay: only a leaky_bucket delays requests": func(r *headgate.Rule) { r.MaxDelay = time.Second },
		"cost: 21: must be at most 20":                   func(r *headgate.Rule) { r.Cost.Default = 21 },
	} {
		r := headgate.Rule{ID: "a", By: []string{"ip"}, Limit: limit}
		change(&r)
		if _, err := headgate.Compile(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := headgate.Take(t.Context(), memstore.New(memstore.Options{}), limit, "x"); err == nil {
		t.Error("Take acquired a slot that is never released")
	}
}

// TestLongerWaits orders waits: none, unknown, known, never.
func TestLongerWaits(t *testing.T) {
	t.Parallel()
	order := []time.Duration{0, headgate.Unknown, time.Microsecond, time.Hour, headgate.Never}
	for i, a := range order {
		for j, b := range order {
			if headgate.Longer(a, b) != (i > j) {
				t.Errorf("%s is longer than %s: %t", a, b, i <= j)
			}
		}
	}
}
