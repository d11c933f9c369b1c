package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate"
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
	for name, address := range map[string]string{
		"standalone": standalone(startServer(t)),
		"cluster":    cluster(startCluster(t)),
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, address)
			for round := range 20 {
				history := record(t, store, limit, headgate.SubjectOf("linear", string(rune('a'+round))))
				if !porcupine.CheckOperations(model, history) {
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
