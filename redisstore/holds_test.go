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

// TestHoldsBalance makes random reservations, commits and cancellations on one counter: in time, twice and too late, up to as
// many holds as there may be. It keeps an account of its own: nothing is lost, and nothing counts twice. Set
// HEADGATE_HOLD_OPERATIONS for more of them.
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
			Subject: headgate.SubjectOf("balance"), Counter: countlessC,
			Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: headgate.MaxCost, Window: 366 * 24 * time.Hour},
		},
	}
	most, peak := min(headgate.MaxHolds-2*batch, operations/4), 0
	for done := 0; done < operations; done += batch {
		a.operate(len(a.live) < most-batch)
		peak = max(peak, len(a.live))
	}
	store, _ := a.Store.(*Store)
	fields, _ := server.Must(t, "HLEN", store.Key(a.charge.Subject)).(int64)
	t.Logf("seed %d: %d operations, at most %d holds; %d live at the end, in %d fields; %d units recorded",
		seed, operations, peak, len(a.live), fields, a.recorded)
	if peak < most*9/10 {
		t.Errorf("there were never more than %d holds", peak)
	}
	if fields > int64(2*peak+256) {
		t.Errorf("%d fields: those that have ended are not swept", fields)
	}
	a.now = a.now.Add(2 * headgate.MaxHold)
	if a.balance(); a.held != 0 {
		t.Errorf("%d units are held after all holds have ended", a.held)
	}
}

const batch = 50

// account is what a counter must have, by simple addition.
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

// operate makes a batch of operations in one call, and looks at the balance.
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
		if a.IntN(10) > 0 {                                                           // else it is settled again
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

// expire takes what has ended off the account.
func (a *account) expire() {
	for len(a.ends) > 0 && a.ends[0].Time <= a.now.UnixMicro() {
		r, _ := heap.Pop(&a.ends).(headgate.Receipt)
		if _, there := a.live[r.Mark]; there {
			a.held -= r.Units
			delete(a.live, r.Mark)
		}
	}
}

// enter enters what became of a charge.
func (a *account) enter(c *headgate.Charge, r *headgate.Result) {
	if c.Hold > 0 {
		end, asked := time.UnixMicro(r.Receipt.Time), a.now.Add(c.Hold)
		if r.Granted != c.Cost || end.Before(asked.Truncate(time.Microsecond)) || end.Sub(asked) > c.Hold/8+time.Second/64 {
			a.Fatalf("%+v: held until %s: %+v", c, end, r)
		}
		if _, twice := a.live[r.Receipt.Mark]; twice || a.settled[r.Receipt.Mark] {
			a.Fatalf("two holds have the number %d", r.Receipt.Mark)
		}
		a.live[r.Receipt.Mark] = r.Receipt
		heap.Push(&a.ends, r.Receipt)
		a.held += r.Granted
		a.receipts = append(a.receipts, r.Receipt)
		return
	}
	_, there := a.live[c.Release.Mark]
	late := c.Release.Time <= a.now.UnixMicro()
	if there {
		a.held -= c.Release.Units
		delete(a.live, c.Release.Mark)
	}
	want := int64(0)
	if there || late {
		want = c.Cost
	}
	if r.Granted != want {
		a.Fatalf("%+v, there %v, late %v: %+v", c, there, late, r)
	}
	a.settled[c.Release.Mark] = true
	a.recorded += r.Granted
}

func (a *account) balance() {
	a.expire()
	if left := a.take([]headgate.Charge{a.charge})[0].Remaining; left != a.charge.Limit.Count-a.recorded-a.held {
		a.Fatalf("%d are left, and should be %d - %d recorded - %d held", left, a.charge.Limit.Count, a.recorded, a.held)
	}
}
