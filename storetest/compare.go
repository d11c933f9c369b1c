package storetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Comparison configures a random comparison of a store with the specification.
type Comparison struct {
	// Charges is the minimum number of charges.
	Charges int
	// Seed is the seed of the random sequence.
	Seed uint64
	// Algorithm is the algorithm of most of the charges; the others use any algorithm.
	Algorithm headgate.Algorithm
	// Narrow makes all charges on one counter with a small limit and a short window, so that its state gets more complex.
	Narrow bool
}

// Compare makes the same random charges on a store and on the specification and returns the first difference. The charges mix costs,
// limits, times and changes of limits, several limits and subjects per request, peeks, partial, observing and forced charges,
// refunds, credits with and without a bound, holds and releases, aged charges, counters that count as used while they do not exist,
// operations of holders and steps of the clock. Every field of every result must be equal, except Nodes and Rank.
func Compare(target Target, c Comparison) error {
	w := newWorld(target, c)
	ctx := context.Background()
	for made, call := 0, 0; made < c.Charges; call++ {
		w.advance()
		charges := w.request()
		got, err := target.takeBoth(ctx, w.model, charges, w.now)
		if err != nil {
			return fmt.Errorf("seed %d, call %d at %s: %w", c.Seed, call, w.now.Format(time.RFC3339Nano), err)
		}
		w.remember(charges, got)
		made += len(charges)
	}
	return nil
}

// takeBoth makes charges on the specification and on the store. It returns the store's results, or an error if they differ.
func (t *Target) takeBoth(ctx context.Context, m *model, charges []headgate.Charge, now time.Time) ([]headgate.Result, error) {
	want, got := make([]headgate.Result, len(charges)), make([]headgate.Result, len(charges))
	m.now = now
	m.take(charges, want)
	t.SetTime(now)
	if err := t.Store.Take(ctx, charges, got); err != nil {
		return nil, err
	}
	for i := range got {
		if got[i].Nodes, got[i].Rank = 0, 0; got[i] != want[i] {
			var all strings.Builder
			for j := range charges {
				fmt.Fprintf(&all, "\n  charge %d: %+v\n    want %+v\n    got  %+v", j, charges[j], want[j], got[j])
			}
			return nil, fmt.Errorf("charge %d differs from the specification:%s", i, all.String())
		}
	}
	return got, nil
}

// compareAll runs Compare for each algorithm.
func compareAll(t *testing.T, open func(testing.TB) Target, perAlgorithm int) {
	target := open(t)
	for a := headgate.TokenBucket; a <= headgate.Concurrency; a++ {
		t.Run(a.String(), func(t *testing.T) {
			seed := rand.Uint64() //nolint:gosec // printed on failure, not secret
			if err := Compare(target, Comparison{Charges: perAlgorithm, Seed: seed, Algorithm: a}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// world is the state of a random sequence: a few subjects, a few limits whose numbers change, and receipts to refund.
type world struct {
	rand     *rand.Rand
	model    *model
	focus    headgate.Algorithm
	narrow   bool
	seed     uint64
	lives    int
	now      time.Time
	subjects []headgate.Subject
	limits   []namedLimit
	given    []given
	waiting  headgate.Charge // a charge with a RetryAfter or ResetAfter, which is in wait
	wait     time.Duration
	due      bool // waiting is the next charge
	seq      int64
}

type namedLimit struct {
	counter headgate.Counter
	headgate.Limit
}

// given is a charge that was recorded, and its receipt.
type given struct {
	charge  headgate.Charge
	receipt headgate.Receipt
}

// epoch is far enough in the future that no real server's clock reaches the expiry times of a comparison.
var epoch = time.Unix(2_000_000_000, 0)

func newWorld(target Target, c Comparison) *world {
	w := &world{
		rand:   rand.New(rand.NewPCG(c.Seed, 1)), //nolint:gosec // reproducible, not secret
		model:  newModel(target.Group),
		focus:  c.Algorithm,
		narrow: c.Narrow,
		seed:   c.Seed,
	}
	w.restart()
	limits := 12
	if w.narrow {
		limits = 1
	}
	for i := range limits {
		l := namedLimit{Limit: w.limit(w.algorithm())}
		if i == 0 {
			l.Limit = w.limit(w.focus)
		}
		l.counter = headgate.CounterOf(fmt.Sprint("limit-", i), "", l.Algorithm)
		w.limits = append(w.limits, l)
	}
	return w
}

// restart begins again at the epoch with new subjects.
func (w *world) restart() {
	w.lives++
	w.now, w.given, w.wait, w.due = epoch, nil, 0, false
	w.model.states, w.model.holds = map[counter]headgate.State{}, map[hold]headgate.Hold{}
	w.subjects = w.subjects[:0]
	subjects := 6
	if w.narrow {
		subjects = 1
	}
	for i := range subjects {
		w.subjects = append(w.subjects, headgate.SubjectOf("compare", fmt.Sprint(w.seed, w.focus, w.narrow, w.lives, i)))
	}
}

func (w *world) algorithm() headgate.Algorithm {
	if w.chance(3, 4) {
		return w.focus
	}
	return headgate.Algorithm(w.rand.IntN(int(headgate.Concurrency) + 1))
}

func (w *world) chance(k, n int) bool { return w.rand.IntN(n) < k }

func oneOf[T any](w *world, values ...T) T { return values[w.rand.IntN(len(values))] }

// limit returns a random limit, often a small one, so that charges exceed it.
func (w *world) limit(a headgate.Algorithm) headgate.Limit {
	if w.narrow {
		l := headgate.Limit{Algorithm: a, Count: oneOf[int64](w, 7, 12, 20), Window: oneOf(w, time.Millisecond, 2*time.Millisecond)}
		if a == headgate.SlidingWindow {
			l.Align = oneOf(w, headgate.FromFirst, headgate.OnClock, headgate.OnClockSpread)
		}
		if a == headgate.Concurrency {
			l.Window *= 1000
		}
		return l
	}
	l := headgate.Limit{
		Algorithm: a,
		Count:     oneOf[int64](w, 1, 2, 3, 7, 10, 60, 100, 999),
		Window: oneOf(w, time.Millisecond, 100*time.Millisecond, time.Second, 1500*time.Millisecond, 7*time.Second,
			time.Minute, time.Hour, 24*time.Hour, 30*24*time.Hour, 1234567*time.Microsecond),
	}
	if a != headgate.SlidingLog && w.chance(1, 4) {
		l.Count = oneOf[int64](w, 9_999, 1_500_000, 999_999_937, headgate.MaxCost)
	}
	switch {
	case a == headgate.TokenBucket && w.chance(1, 2):
		l.Burst = oneOf[int64](w, 1, 5, 50, l.Count, 2*l.Count)
	case a == headgate.FixedWindow && w.chance(1, 3), a == headgate.SlidingWindow && w.chance(1, 2):
		l.Align = oneOf(w, headgate.OnClock, headgate.OnClockSpread)
	case a == headgate.FixedWindow && w.chance(1, 2):
		l.Window = 0
		l.Calendar = oneOf(w, headgate.Minute, headgate.Hour, headgate.Day, headgate.Week, headgate.Month)
		l.TimeZone = oneOf(w, nil, berlin, lordHowe)
		switch l.Calendar {
		case headgate.Week:
			l.AnchorDay = w.rand.IntN(8)
		case headgate.Month:
			l.AnchorDay = w.rand.IntN(32)
		}
	}
	if l.Validate() != nil {
		return w.limit(a)
	}
	return l
}

var berlin, lordHowe = mustZone("Europe/Berlin"), mustZone("Australia/Lord_Howe")

func mustZone(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err) // the zones are compiled in
	}
	return zone
}

// advance moves the clock: mostly a little, often to a time at which a state changes, sometimes far, occasionally back.
func (w *world) advance() {
	step := time.Duration(0)
	kind := w.rand.IntN(15)
	if w.narrow && kind < 13 {
		kind = oneOf(w, 1, 3, 3, 6, 13)
	}
	switch kind {
	case 0, 1, 2:
	case 3, 4:
		step = time.Duration(w.rand.IntN(50)) * time.Microsecond
	case 5:
		step = time.Duration(w.rand.Int64N(int64(2 * time.Second)))
	case 6, 7, 8:
		step = w.wait + oneOf(w, -time.Microsecond, 0, 0, time.Microsecond)
		w.due = w.wait > 0
	case 9:
		step = oneOf(w, time.Second, time.Minute, time.Hour, 24*time.Hour)
		step -= time.Duration(w.now.UnixNano()) % step // to the next full unit, where states expire and windows roll
		step += oneOf(w, -time.Microsecond, 0)
	case 10:
		// To the expiry of a state, whose limit may have other numbers by then.
		c := headgate.Charge{Subject: w.subjects[w.rand.IntN(len(w.subjects))], Cost: 1}
		l := w.limits[w.rand.IntN(len(w.limits))]
		c.Counter, c.Limit = l.counter, l.Limit
		s := w.model.states[counter{c.Subject, c.Counter}]
		if step = max(0, time.Unix(s.Expires, 0).Sub(w.now)); step > 0 {
			w.waiting, w.due = c, true
		}
	case 11:
		if w.chance(1, 4) {
			step = -time.Duration(w.rand.Int64N(int64(30 * time.Second)))
		}
	case 13, 14:
		// To the time at which an entry leaves a log, or holds or holders expire.
		l := w.limits[w.rand.IntN(len(w.limits))*w.rand.IntN(2)]
		s := w.model.states[counter{w.subjects[0], l.counter}]
		if len(s.Log) > 0 {
			at := time.UnixMicro(s.Log[w.rand.IntN(len(s.Log))].Time)
			if l.Algorithm == headgate.SlidingLog {
				at = at.Add(l.Window)
			}
			step = max(0, at.Sub(w.now)) + oneOf(w, -time.Microsecond, 0, 0)
		} else if len(s.Holders) > 0 {
			at := time.UnixMicro(s.Holders[w.rand.IntN(len(s.Holders))].Until)
			step = max(0, at.Sub(w.now)) + oneOf(w, -time.Microsecond, 0, 0)
		}
	case 12:
		step = time.Duration(w.rand.Int64N(int64(oneOf(w, time.Minute, time.Hour, 40*24*time.Hour))))
	}
	if step < 0 && !w.mayStepBack(step) {
		step = 0
	}
	w.now = w.now.Add(step).Truncate(time.Microsecond)
	if w.now.Before(epoch) || w.now.After(epoch.Add(40*366*24*time.Hour)) {
		w.restart()
	}
}

// mayStepBack reports whether the clock can be set back without reviving a state or hold that a store may have dropped.
func (w *world) mayStepBack(by time.Duration) bool {
	for _, s := range w.model.states {
		if s.Expires <= w.now.Unix() && s.Expires > w.now.Add(by).Unix() {
			return false
		}
	}
	now, to := w.now.UnixMicro(), w.now.Add(by).UnixMicro()
	for _, h := range w.model.holds {
		if h.End <= now && h.End > to {
			return false
		}
	}
	return true
}

func (w *world) request() []headgate.Charge {
	if w.chance(1, 20) { // change the numbers of a limit
		l := &w.limits[w.rand.IntN(len(w.limits))]
		l.Limit = w.limit(l.Algorithm)
	}
	charges := make([]headgate.Charge, oneOf(w, 1, 1, 1, 2, 3, 5, 9))
	weight := 0
	for i := range charges {
		charges[i] = w.charge(charges[:i])
		if weight += charges[i].Limit.Weight(); weight > headgate.MaxWeight {
			return charges[:i] // the largest weight that is decided in one step
		}
	}
	return charges
}

func (w *world) charge(before []headgate.Charge) headgate.Charge {
	if w.due && w.waiting.Refund.Units == 0 && w.waiting.Release.Units == 0 {
		w.due = false
		return w.waiting
	}
	if len(w.given) > 0 && w.chance(1, 8) {
		return w.refund()
	}
	l := w.limits[w.rand.IntN(len(w.limits))]
	c := headgate.Charge{
		Subject: w.subjects[w.rand.IntN(len(w.subjects))],
		Counter: l.counter,
		Limit:   l.Limit,
		Cost:    oneOf[int64](w, 0, 1, 1, 1, 1, 2, 3, 10),
	}
	if w.chance(1, 3) { // one counter is used more than the others
		l = w.limits[0]
		c.Subject, c.Counter, c.Limit = w.subjects[0], l.counter, l.Limit
	} else if len(before) > 0 && w.chance(1, 2) { // several limits on one subject
		c.Subject = before[w.rand.IntN(len(before))].Subject
	}
	if w.chance(1, 6) {
		c.Absent = oneOf(w, 1, 2, c.Limit.Count/2, c.Limit.Count-1, c.Limit.Count, c.Limit.Count+1, headgate.MaxCost, headgate.MaxCost+1, -1)
	}
	if w.chance(1, 6) { // close to what is left
		peek := headgate.Charge{Subject: c.Subject, Absent: c.Absent, MaxDelay: time.Hour}
		_, left := c.Limit.Take(w.model.states[counterOf(&c)], peek, w.now)
		c.Cost = min(headgate.MaxCost, left.Remaining+w.rand.Int64N(5))
	} else if w.chance(1, 6) {
		c.Cost = oneOf(w, l.Count-1, l.Count, l.Count+1, l.Count/2, headgate.MaxCost, headgate.MaxCost+1, -1)
	}
	if w.chance(1, 50) { // an invalid limit, which denies
		c.Limit, c.Counter = headgate.Limit{Count: -1}, 0
	}
	if w.chance(1, 6) {
		c.AtLeast = oneOf(w, 1, 2, c.Cost, c.Cost+1)
	}
	if l.Algorithm == headgate.LeakyBucket {
		c.MaxDelay = oneOf(w, 0, time.Microsecond, 10*time.Millisecond, time.Second, time.Minute, 1000*time.Hour)
	}
	if w.chance(1, 10) { // only a leaky bucket uses it
		c.Whole = headgate.Limit{Algorithm: c.Limit.Algorithm, Count: 3 * c.Limit.Count, Window: oneOf(w, c.Limit.Window, c.Limit.Window/3)}
	}
	if w.chance(1, 20) || c.Limit.Algorithm == headgate.Concurrency { // other limits ignore it
		w.operate(&c)
	}
	if w.chance(1, 20) { // other charges than credits ignore it
		c.Within = w.within(&c)
	}
	switch w.rand.IntN(12) {
	case 0:
		c.Force = true
		c.Age = w.age(c.Limit.Window)
	case 1:
		c.Credit = true
		c.Cost = oneOf(w, c.Cost, headgate.MaxCost)
		c.Within = w.within(&c)
	case 2, 3:
		c.Hold = oneOf(w, time.Nanosecond, time.Microsecond, 100*time.Millisecond, time.Second, time.Second, time.Minute,
			10*time.Minute, 2*headgate.MaxHold)
		c.Prepaid = w.chance(1, 6)
	}
	if w.chance(1, 6) {
		c.Observe = true
		for i := range before {
			if before[i].Subject == c.Subject && w.chance(1, 2) {
				c.Twin = before[i].Counter
			}
		}
	}
	return c
}

// operate makes the charge an operation of a holder, mostly with the next sequence number. The ids of some holders look like parts of
// other entries: a store that searches for them must not be misled.
func (w *world) operate(c *headgate.Charge) {
	c.Holder = oneOf[uint64](w, 0, 1, 1<<56, 1<<32|1, 0x0102030405060708, math.MaxUint64)
	if w.chance(1, 10) {
		c.Holder = w.rand.Uint64()
	}
	c.Slots = oneOf(w, headgate.AcquireSlots, headgate.AcquireSlots, headgate.ReleaseSlots, headgate.SetSlots)
	w.seq++
	c.Seq = oneOf(w, w.seq, w.seq, w.seq, w.seq-w.rand.Int64N(5))
	if w.chance(1, 12) {
		c.Seq = oneOf[int64](w, 0, -1, 1, 1<<52, math.MaxInt64)
	}
}

// within returns a random bound of a credit: often none, the current window or time, or one close to it.
func (w *world) within(c *headgate.Charge) int64 {
	t, valid := c.Terms(w.now)
	if !valid || w.chance(1, 3) {
		return oneOf[int64](w, 0, 0, 0, -1, 1, math.MaxInt64)
	}
	at := w.now.UnixMicro()
	switch {
	case t.Aligned:
		at = t.Start
	case t.Algorithm == headgate.FixedWindow || t.Algorithm == headgate.SlidingWindow:
		at = w.model.states[counterOf(c)].Time
	}
	return at + oneOf(w, 0, 0, 0, -1, 1, -t.Window, t.Window, t.End-t.Start)
}

// age returns a random age of a charge: often 0 or about a window.
func (w *world) age(window time.Duration) time.Duration {
	if w.chance(1, 2) {
		return 0
	}
	return oneOf(w, -time.Second, time.Microsecond, time.Millisecond, 100*time.Millisecond, time.Second, time.Minute, window/2,
		window-time.Microsecond, window, window+time.Microsecond, 2*window-time.Microsecond, 2*window, time.Duration(w.rand.Int64N(int64(2*window+1))))
}

// refund returns a refund of an earlier receipt, mostly a recent one, in full or in part, under the limit's current numbers; or a
// release of a hold that records more or less than was held, sometimes twice.
func (w *world) refund() headgate.Charge {
	i := len(w.given) - 1 - min(w.rand.IntN(len(w.given)), w.rand.IntN(len(w.given)))
	g := w.given[i]
	if undo, _ := g.charge.Undo(&headgate.Result{Receipt: g.receipt}); undo.Release.Units > 0 {
		undo.Limit = w.limitOf(g.charge.Counter)
		undo.Cost = oneOf(w, 0, g.receipt.Units, w.rand.Int64N(2*g.receipt.Units+2), headgate.MaxCost+1)
		undo.Age = w.age(undo.Limit.Window)
		if w.chance(3, 4) {
			w.given = append(w.given[:i], w.given[i+1:]...)
		}
		return undo
	}
	w.given = append(w.given[:i], w.given[i+1:]...)
	c := headgate.Charge{
		Subject: g.charge.Subject, Counter: g.charge.Counter, Limit: w.limitOf(g.charge.Counter),
		Cost: g.receipt.Units, Refund: g.receipt, Holder: g.charge.Holder, Seq: g.charge.Seq,
	}
	if w.chance(1, 3) {
		c.Cost = w.rand.Int64N(c.Cost + 2)
	}
	if w.chance(1, 10) { // refunds ignore it
		c.Absent = 1
	}
	return c
}

// limitOf returns the current limit of a counter.
func (w *world) limitOf(k headgate.Counter) headgate.Limit {
	for _, l := range w.limits {
		if l.counter == k {
			return l.Limit
		}
	}
	return headgate.Limit{}
}

// remember stores receipts to refund, and a charge to repeat after its wait.
func (w *world) remember(charges []headgate.Charge, results []headgate.Result) {
	for i, r := range results {
		if r.Receipt.Units > 0 {
			w.given = append(w.given, given{charges[i], r.Receipt})
		}
		if wait := oneOf(w, r.RetryAfter, r.RetryAfter, r.ResetAfter); wait > 0 && w.chance(1, 2) {
			w.wait, w.waiting = wait, charges[i]
		}
	}
	if len(w.given) > 50 {
		w.given = w.given[len(w.given)-50:]
	}
}
