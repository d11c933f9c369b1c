package storewrap

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

const redisNodes = 20

// fleetOnRedis returns one store per node, all on the same Redis.
func fleetOnRedis(t *testing.T) []headgate.Store {
	t.Helper()
	server := testenv.Start(t, testenv.Redis)
	stores := make([]headgate.Store, redisNodes)
	for i := range stores {
		store, err := redisstore.Open("redis://" + server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		if err := store.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		stores[i] = store
	}
	return stores
}

// rush is traffic on one counter of a cluster, with a goroutine per node.
type rush struct {
	*cluster
	charge   headgate.Charge
	admitted atomic.Int64
	requests atomic.Int64
	killing  []sync.RWMutex // one per node, read-locked during a request
}

func newRush(t *testing.T, stores []headgate.Store, limit headgate.Limit, name string) *rush {
	t.Helper()
	next := 0
	c := newCluster(t, len(stores), func() headgate.Store { next++; return stores[next-1] })
	charge := headgate.Charge{
		Subject: headgate.SubjectOf(t.Name(), name), Counter: headgate.CounterOf("r", "", limit.Algorithm),
		Limit: limit, Cost: 1,
	}
	return &rush{cluster: c, charge: charge, killing: make([]sync.RWMutex, len(stores))}
}

// run generates the traffic in real time, or as fast as this machine can.
func (r *rush) run(t *testing.T, next traffic, lasts time.Duration) {
	t.Helper()
	seed := newSeed()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	random := rand.New(rand.NewPCG(seed, 0))
	var running sync.WaitGroup
	queues := make([]chan struct{}, len(r.nodes))
	for i := range queues {
		queues[i] = make(chan struct{}, 64)
		running.Go(func() { r.serve(t, i, queues[i]) })
	}
	start := time.Now()
	for at := time.Duration(0); at < lasts; {
		pause, node := next(random, at, len(r.nodes))
		at += pause
		if ahead := at - time.Since(start); ahead > time.Millisecond {
			time.Sleep(ahead)
		}
		queues[node] <- struct{}{}
	}
	for _, queue := range queues {
		close(queue)
	}
	running.Wait()
}

func (r *rush) serve(t *testing.T, node int, queue <-chan struct{}) {
	charges, results := []headgate.Charge{r.charge}, make([]headgate.Result, 1)
	for range queue {
		r.killing[node].RLock()
		err := r.nodes[node].Take(t.Context(), charges, results)
		r.killing[node].RUnlock()
		if err != nil || results[0].Path == headgate.PathLocal {
			t.Errorf("%+v: %v", results[0], err)
		}
		r.requests.Add(1)
		if results[0].Allowed {
			r.admitted.Add(1)
		}
	}
}

// killAll kills the nodes one after the other.
func (r *rush) killAll(every time.Duration) {
	for i := range r.nodes {
		time.Sleep(every)
		r.killing[i].Lock()
		r.kill(i)
		r.killing[i].Unlock()
	}
}

func (r *rush) callsPerRequest() float64 { return float64(r.calls.Load()) / float64(r.requests.Load()) }

func (r *rush) held() (units int64) {
	for _, node := range r.nodes {
		units += node.held(r.charge)
	}
	return units
}

// On a Redis that many nodes use at once, leases admit what the limit allows, and Redis counts what was admitted.
func TestLeasesOnRedis(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	stores := fleetOnRedis(t)
	const limit, lasts = 2_000, 600 * time.Millisecond
	for _, a := range leased {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			rushes := map[string]*rush{}
			var running sync.WaitGroup
			for name, test := range map[string]struct {
				next func(float64) traffic
				load float64
			}{
				"below": {steady, 0.5}, "overload": {steady, 20}, "kills": {steady, 3},
				"steady": {steady, 1.5}, "bursty": {bursty, 1.5}, "skewed": {skewed, 1.5}, "hopping": {hopping, 1.5},
			} {
				r := newRush(t, stores, yearly(a, limit).Limit, name)
				rushes[name] = r
				running.Go(func() { r.run(t, test.next(test.load*limit/lasts.Seconds()), lasts) })
				if name == "kills" {
					running.Go(func() { r.killAll(lasts / redisNodes / 2) })
				}
			}
			running.Wait()
			for name, r := range rushes {
				r.check(t, name)
			}
		})
	}
}

// requestMore requests units that other nodes returned late, because the machine was busy.
func (r *rush) requestMore(t *testing.T) {
	t.Helper()
	limit := r.charge.Limit.Count
	for end := time.Now().Add(2 * maxTrust); r.requests.Load() > limit && r.admitted.Load() < limit && time.Now().Before(end); {
		for i := range r.nodes {
			queue := make(chan struct{}, 1)
			queue <- struct{}{}
			close(queue)
			r.serve(t, i, queue)
		}
		time.Sleep(time.Millisecond)
	}
}

// check ends the traffic and checks its outcome. A bucket may lose a few returned units, if others were returned just before.
func (r *rush) check(t *testing.T, name string) {
	t.Helper()
	r.requestMore(t)
	held := r.held()
	r.close()
	admitted, counted, limit := r.admitted.Load(), used(t, r.connections[0].Store, r.charge), r.charge.Limit.Count
	lost := int64(r.kills) * limit / (leaseFraction * redisNodes)
	if r.charge.Limit.Algorithm == headgate.TokenBucket {
		lost += limit / 100
	}
	strict := min(r.requests.Load(), limit)
	t.Logf("%s: %d ÷ %d admitted of %d, %d held, %d counted, %.3f calls each",
		name, admitted, strict, r.requests.Load(), held, counted, r.callsPerRequest())
	if admitted > strict+1 || float64(admitted+held) < 0.995*float64(strict)-float64(lost) {
		t.Errorf("%s: %d admitted, want %d", name, admitted, strict)
	}
	if counted > admitted+lost || counted < admitted-1 {
		t.Errorf("%s: %d counted of %d admitted", name, counted, admitted)
	}
	if name == "kills" && r.kills != redisNodes {
		t.Errorf("%d kills", r.kills)
	}
}

// No unit of a bucket that refills continuously is lost, and no more is admitted than was refilled. Lost units are detected
// only if the traffic was as fast as intended, which it is not on a busy machine.
func TestBucketOnRedis(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	const limit = 2_000
	r := newRush(t, fleetOnRedis(t), headgate.PerSecond(limit), "")
	all := r.charge
	all.Cost = limit // empty it, so that it does not overflow
	first, err := take(r.connections[0].Store, all)
	if err != nil {
		t.Fatal(err)
	}
	const lasts = 1500 * time.Millisecond
	r.run(t, steady(5*limit), lasts)
	r.close()
	peek := r.charge
	peek.Cost = 0
	last, err := take(r.connections[0].Store, peek)
	if err != nil {
		t.Fatal(err)
	}
	elapsed := last[0].Time.Sub(first[0].Time)
	filled := limit * (1 + elapsed.Seconds())
	got := float64(limit + r.admitted.Load() + last[0].Remaining)
	t.Logf("%.0f of %.0f, %d left, %.3f calls each", got, filled, last[0].Remaining, r.callsPerRequest())
	if got > filled+1 || got < 0.995*filled && last[0].Remaining < limit && elapsed < lasts+lasts/10 {
		t.Errorf("%.0f are admitted or left, of %.0f", got, filled)
	}
}
