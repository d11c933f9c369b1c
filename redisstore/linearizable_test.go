package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// taken is the output of a charge.
type taken struct {
	granted, remaining int64
}

// TestLinearizable checks histories of concurrent charges and refunds on one subject: there is an order, consistent with the
// times of the calls, in which a sequential counter returns the same results.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	const count = 60
	limit := headgate.Limit{Algorithm: headgate.FixedWindow, Count: count, Window: 24 * time.Hour}
	model := porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			used, cost, got := state.(int64), input.(int64), output.(taken)
			switch {
			case cost < 0:
				return got.granted == -cost && got.remaining == count-used-cost, used + cost
			case used+cost <= count:
				return got.granted == cost && got.remaining == count-used-cost, used + cost
			}
			return got.granted == 0 && got.remaining == count-used, used
		},
	}
	expectLinearizable(t, &model, func(t *testing.T, store *Store, subject headgate.Subject) []porcupine.Operation {
		return record(t, store, limit, subject)
	})
}

// expectLinearizable records rounds of operations, each on a new subject, and fails if no order explains their results by the model.
func expectLinearizable(
	t *testing.T, model *porcupine.Model, record func(*testing.T, *Store, headgate.Subject) []porcupine.Operation,
) {
	t.Helper()
	for name, address := range map[string]string{
		"standalone": standalone(startServer(t)),
		"cluster":    cluster(startCluster(t)),
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, address)
			for round := range 20 {
				history := record(t, store, headgate.SubjectOf("linear", string(rune('a'+round))))
				if !porcupine.CheckOperations(*model, history) {
					t.Fatalf("round %d: no order explains the results", round)
				}
			}
		})
	}
}

// record lets a few callers charge and refund, and records the begin, end and result of each call.
func record(t *testing.T, store *Store, limit headgate.Limit, subject headgate.Subject) []porcupine.Operation {
	var mu sync.Mutex
	var history []porcupine.Operation
	var done sync.WaitGroup
	for client := range 8 {
		done.Go(func() {
			var receipts []headgate.Receipt
			for range 25 {
				c := headgate.Charge{Subject: subject, Counter: unlimitedCounter, Limit: limit, Cost: 1 + rand.Int64N(5)}
				input := c.Cost
				if len(receipts) > 0 && rand.IntN(3) == 0 {
					c.Refund, receipts = receipts[0], receipts[1:]
					c.Cost = c.Refund.Units
					input = -c.Cost
				}
				var results [1]headgate.Result
				begin := time.Now().UnixNano()
				err := store.Take(context.Background(), []headgate.Charge{c}, results[:])
				end := time.Now().UnixNano()
				if err != nil {
					t.Error(err)
					return
				}
				if r := results[0].Receipt; r.Units > 0 {
					receipts = append(receipts, r)
				}
				mu.Lock()
				history = append(history, porcupine.Operation{
					ClientId: client, Input: input, Call: begin, Return: end,
					Output: taken{granted: results[0].Granted, remaining: results[0].Remaining},
				})
				mu.Unlock()
			}
		})
	}
	done.Wait()
	return history
}

// slotHolders is the number of holders of TestLinearizableSlots. Each has several callers, so that its operations overlap.
const slotHolders = 3

type (
	slotState  [slotHolders]struct{ units, seq int64 }
	slotInput  struct{ headgate.Charge }
	slotOutput struct{ granted, remaining, holding int64 }
)

// TestLinearizableSlots checks histories of concurrent acquires, releases and sets, as TestLinearizable does.
func TestLinearizableSlots(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: 12, Window: time.Hour}
	model := porcupine.Model{
		Init: func() any { return slotState{} },
		Step: func(state, input, output any) (bool, any) {
			s, c := state.(slotState), input.(slotInput)
			var want slotOutput
			used := int64(0)
			for _, h := range s {
				used += h.units
			}
			h := &s[c.Holder]
			switch {
			case c.Slots == headgate.ReleaseSlots && h.seq == 0: // a release makes no entry
			case c.Slots == headgate.ReleaseSlots:
				want.granted = min(c.Cost, h.units)
				h.units, h.seq = h.units-want.granted, max(h.seq, c.Seq)
				used -= want.granted
			case c.Slots == headgate.SetSlots && c.Seq > h.seq:
				want.granted = c.Cost
				used, h.units, h.seq = used+c.Cost-h.units, c.Cost, c.Seq
			case c.Slots == headgate.AcquireSlots && used+c.Cost <= limit.Count:
				want.granted = c.Cost
				used, h.units, h.seq = used+c.Cost, h.units+c.Cost, max(h.seq, c.Seq)
			}
			want.remaining, want.holding = max(0, limit.Count-used), h.units
			return want == output.(slotOutput), s
		},
	}
	expectLinearizable(t, &model, func(t *testing.T, store *Store, subject headgate.Subject) []porcupine.Operation {
		return recordSlots(t, store, limit, subject)
	})
}

// recordSlots lets a few callers of each holder acquire, release and set units. Some numbers are old, as of operations that arrive in
// another order.
func recordSlots(t *testing.T, store *Store, limit headgate.Limit, subject headgate.Subject) []porcupine.Operation {
	var mu sync.Mutex
	var history []porcupine.Operation
	var done sync.WaitGroup
	var seq [slotHolders]atomic.Int64
	for client := range 2 * slotHolders {
		done.Go(func() {
			for range 20 {
				c := headgate.Charge{
					Subject: subject, Counter: unlimitedCounter, Limit: limit, Cost: 1 + rand.Int64N(4), Holder: uint64(client % slotHolders),
					Slots: [...]headgate.SlotOp{headgate.AcquireSlots, headgate.AcquireSlots, headgate.ReleaseSlots, headgate.SetSlots}[rand.IntN(4)],
				}
				c.Seq = max(1, seq[c.Holder].Add(1)-rand.Int64N(4))
				var results [1]headgate.Result
				begin := time.Now().UnixNano()
				err := store.Take(context.Background(), []headgate.Charge{c}, results[:])
				end := time.Now().UnixNano()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{
					ClientId: client, Input: slotInput{c}, Call: begin, Return: end,
					Output: slotOutput{results[0].Granted, results[0].Remaining, results[0].HolderUnits},
				})
				mu.Unlock()
			}
		})
	}
	done.Wait()
	return history
}
