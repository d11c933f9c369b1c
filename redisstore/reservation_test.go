package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// 200 callers on two nodes reserve the cost that they expect and commit the actual one; some never commit, and some commit
// too late. The charges exceed the limit by at most the units that were committed in excess of the holds. After the last hold
// has expired, the remaining units are exactly the limit less the charges.
func TestReserveAndCommit(t *testing.T) {
	t.Parallel()
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		reserveAndCommit(t, standalone(startServer(t)))
	})
	t.Run("valkey", func(t *testing.T) {
		t.Parallel()
		reserveAndCommit(t, standalone(testenv.Start(t, testenv.Valkey)))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		reserveAndCommit(t, cluster(startCluster(t)))
	})
}

func reserveAndCommit(t *testing.T, address string) {
	const (
		limit, callers, each = 60_000, 200, 20
		hold                 = 400 * time.Millisecond
		over                 = hold + hold/8 + 20*time.Millisecond
	)
	rules := []headgate.Rule{
		{ID: "window", By: []string{"user"}, Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Window: time.Hour}},
		// A limit that never denies, so that both counts can be compared.
		{ID: "sliding", By: []string{"tenant"}, Limit: headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 100 * limit, Window: time.Hour}},
	}
	var nodes []*headgate.Limiter
	for range 2 {
		node, err := headgate.New(open(t, address), rules...)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	req := headgate.Request{Attributes: headgate.Attributes{"user": "ann", "tenant": "acme"}}
	var charged, excess, denied, abandoned atomic.Int64
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3))
			for range each {
				expected, actual := 1+random.Int64N(40), 1+random.Int64N(50)
				request := req
				request.Cost = expected
				r, err := nodes[random.IntN(2)].Reserve(context.Background(), request, hold)
				switch {
				case err != nil:
					t.Error(err)
					return
				case !r.Decision.Allowed:
					denied.Add(1)
					continue
				case random.IntN(10) == 0:
					abandoned.Add(1)
					continue
				case random.IntN(20) == 0:
					time.Sleep(over)
					expected = 0 // the hold has expired
				}
				if _, err := nodes[random.IntN(2)].Commit(context.Background(), r.Token, headgate.Request{Cost: actual}); err != nil {
					t.Error(err)
					return
				}
				charged.Add(actual)
				excess.Add(max(0, actual-expected))
			}
		})
	}
	done.Wait()
	time.Sleep(over)
	if exceeded := charged.Load() - limit; exceeded > excess.Load() {
		t.Errorf("%d over the limit, %d committed in excess of holds", exceeded, excess.Load())
	}
	d, err := nodes[0].Peek(t.Context(), req)
	if err != nil || len(d.Limits) != 2 {
		t.Fatalf("%+v: %v", d, err)
	}
	if left := d.Limits[0].Remaining; left != max(0, limit-charged.Load()) {
		t.Errorf("window: %d are left of %d, %d were charged", left, limit, charged.Load())
	}
	if left := d.Limits[1].Remaining; left != 100*limit-charged.Load() {
		t.Errorf("sliding: %d are left of %d, %d were charged", left, 100*limit, charged.Load())
	}
	t.Logf("%d charged of %d, %d in excess of holds; %d denied, %d abandoned", charged.Load(), limit, excess.Load(),
		denied.Load(), abandoned.Load())
	if denied.Load() == 0 || abandoned.Load() == 0 {
		t.Error("no reservation was denied, or none was abandoned")
	}
}
