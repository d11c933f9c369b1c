package redisstore

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storetest"
)

// TestHoldsBalance makes random reservations, commits and cancellations on one counter: in time, repeated and late, up to the
// maximum number of holds. It compares them with its own account: no unit is lost, and none counts twice.
// HEADGATE_HOLD_OPERATIONS sets the number of operations.
func TestHoldsBalance(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	operations := fromEnv(t, "HEADGATE_HOLD_OPERATIONS", 60_000)
	server := testenv.Start(t, testenv.Redis)
	seed := rand.Uint64()
	a := &account{
		T: t, Target: openWithClock(t, standalone(server), "balance", nil), Rand: rand.New(rand.NewPCG(seed, 0)),
		now: time.Unix(2_000_000_000, 0), live: map[int64]headgate.Receipt{}, settled: map[int64]bool{},
		charge: headgate.Charge{
			Subject: headgate.SubjectOf("balance"), Counter: unlimitedCounter,
			Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: headgate.MaxCost, Window: 366 * 24 * time.Hour},
		},
	}
	maxHolds, peak := min(headgate.MaxHolds-2*batch, operations/4), 0
	for done := 0; done < operations; done += batch {
		a.operate(len(a.live) < maxHolds-batch)
		peak = max(peak, len(a.live))
	}
	store, _ := a.Store.(*Store)
	fields, _ := server.Must(t, "HLEN", store.Key(a.charge.Subject)).(int64)
	t.Logf("seed %d: %d operations, at most %d holds; %d live at the end, in %d fields; %d units recorded",
		seed, operations, peak, len(a.live), fields, a.recorded)
	if peak < maxHolds*9/10 {
		t.Errorf("there were never more than %d holds", peak)
	}
	if fields > int64(2*peak+256) {
		t.Errorf("%d fields: expired holds are not deleted", fields)
	}
	a.now = a.now.Add(2 * headgate.MaxHold)
	if a.balance(); a.held != 0 {
		t.Errorf("%d units are held after all holds have ended", a.held)
	}
}

const batch = 50

// account computes the expected state of a counter by simple addition.
type account struct {
	*testing.T
	storetest.Target
	*rand.Rand

	now            time.Time
	charge         headgate.Charge
	recorded, held int64
	live           map[int64]headgate.Receipt // by number
	receipts       []headgate.Receipt         // to settle, sometimes again
	settled        map[int64]bool
	ends           byEnd
}

// byEnd is a heap of holds, the first to end on top.
type byEnd []headgate.Receipt

func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].Time < h[j].Time }
func (h byEnd) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byEnd) Push(x any)        { *h = append(*h, x.(headgate.Receipt)) } //nolint:forcetypeassert // nothing else is pushed

func (h *byEnd) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (a *account) take(charges []headgate.Charge) []headgate.Result {
	a.SetTime(a.now)
	results := make([]headgate.Result, len(charges))
	if err := a.Store.Take(a.Context(), charges, results); err != nil {
		a.Fatal(err)
	}
	return results
}

// operate makes a batch of operations in one call, and checks the balance.
func (a *account) operate(more bool) {
	a.now = a.now.Add(time.Duration(a.Int64N(int64(50 * time.Millisecond)))).Truncate(time.Microsecond)
	charges := make([]headgate.Charge, batch)
	for i := range charges {
		charges[i] = a.charge
		if len(a.receipts) == 0 || a.IntN(8) < 1 || more && a.IntN(4) < 3 {
			charges[i].Cost, charges[i].Hold = 1+a.Int64N(100), headgate.MaxHold>>a.IntN(12)-time.Duration(a.IntN(999))
			continue
		}
		n := a.IntN(len(a.receipts))
		charges[i].Release, charges[i].Cost = a.receipts[n], a.Int64N(3)*a.Int64N(60) // often a cancellation
		if a.IntN(10) > 0 {                                                           // otherwise it is settled again later
			a.receipts[n] = a.receipts[len(a.receipts)-1]
			a.receipts = a.receipts[:len(a.receipts)-1]
		}
	}
	a.expire()
	for i, r := range a.take(charges) {
		a.enter(&charges[i], &r)
	}
	a.balance()
}

// expire removes ended holds from the account.
func (a *account) expire() {
	for len(a.ends) > 0 && a.ends[0].Time <= a.now.UnixMicro() {
		r, _ := heap.Pop(&a.ends).(headgate.Receipt)
		if _, exists := a.live[r.Mark]; exists {
			a.held -= r.Units
			delete(a.live, r.Mark)
		}
	}
}

// enter records the result of a charge in the account.
func (a *account) enter(c *headgate.Charge, r *headgate.Result) {
	if c.Hold > 0 {
		end, requested := time.UnixMicro(r.Receipt.Time), a.now.Add(c.Hold)
		if r.Granted != c.Cost || end.Before(requested.Truncate(time.Microsecond)) || end.Sub(requested) > c.Hold/8+time.Second/64 {
			a.Fatalf("%+v: held until %s: %+v", c, end, r)
		}
		if _, twice := a.live[r.Receipt.Mark]; twice || a.settled[r.Receipt.Mark] {
			a.Fatalf("two holds with number %d", r.Receipt.Mark)
		}
		a.live[r.Receipt.Mark] = r.Receipt
		heap.Push(&a.ends, r.Receipt)
		a.held += r.Granted
		a.receipts = append(a.receipts, r.Receipt)
		return
	}
	_, exists := a.live[c.Release.Mark]
	late := c.Release.Time <= a.now.UnixMicro()
	if exists {
		a.held -= c.Release.Units
		delete(a.live, c.Release.Mark)
	}
	want := int64(0)
	if exists || late {
		want = c.Cost
	}
	if r.Granted != want {
		a.Fatalf("%+v, exists %v, late %v: %+v", c, exists, late, r)
	}
	a.settled[c.Release.Mark] = true
	a.recorded += r.Granted
}

func (a *account) balance() {
	a.expire()
	if left := a.take([]headgate.Charge{a.charge})[0].Remaining; left != a.charge.Limit.Count-a.recorded-a.held {
		a.Fatalf("%d remaining, want %d - %d recorded - %d held", left, a.charge.Limit.Count, a.recorded, a.held)
	}
}
