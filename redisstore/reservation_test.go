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

// 200 callers on two nodes reserve what they expect to need and commit what they did need; some forget to, and some come
// too late. What is charged exceeds the limit by no more than what was committed beyond what was held then; when the last
// hold has run out, what is left is the limit without what was charged, to the unit.
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
		// One that never denies, so that the counts of both can be compared.
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
				asked := req
				asked.Cost = expected
				r, err := nodes[random.IntN(2)].Reserve(context.Background(), asked, hold)
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
					expected = 0 // nothing is held any more
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
	if beyond := charged.Load() - limit; beyond > excess.Load() {
		t.Errorf("%d over the limit, %d of it beyond what was held", beyond, excess.Load())
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
	t.Logf("%d charged of %d, %d of it beyond what was held; %d denied, %d abandoned", charged.Load(), limit, excess.Load(),
		denied.Load(), abandoned.Load())
	if denied.Load() == 0 || abandoned.Load() == 0 {
		t.Error("nobody was denied, or nobody forgot")
	}
}
