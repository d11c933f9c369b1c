package memstore_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
)

// noon is the time of most tests. Tests advance a clock only between calls.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

// slowNoon yields to other goroutines while a call holds its locks.
func slowNoon() time.Time {
	runtime.Gosched()
	return noon
}

// perWindow returns a limit of n from the first charge on; the counter expires with the window.
func perWindow(n int64, window time.Duration) headgate.Limit {
	return headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Window: window}
}

// nth returns a subject for a number, as uniform as its hash.
func nth(n uint64) headgate.Subject {
	var s headgate.Subject
	binary.LittleEndian.PutUint64(s[:8], mix(n))
	binary.LittleEndian.PutUint64(s[8:], mix(^n))
	return s
}

// mix returns the splitmix64 finalizer of x.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// charge takes one unit of a limit for the nth subject.
func charge(t *testing.T, store *memstore.Store, limit headgate.Limit, n uint64) headgate.Result {
	t.Helper()
	return take(t, store, headgate.Charge{Subject: nth(n), Limit: limit, Cost: 1})[0]
}

// remaining returns the remaining units of the nth subject.
func remaining(t *testing.T, store *memstore.Store, limit headgate.Limit, n uint64) int64 {
	t.Helper()
	return take(t, store, headgate.Charge{Subject: nth(n), Limit: limit})[0].Remaining
}

func take(t *testing.T, store *memstore.Store, charges ...headgate.Charge) []headgate.Result {
	t.Helper()
	results := make([]headgate.Result, len(charges))
	if err := store.Take(t.Context(), charges, results); err != nil {
		t.Error(err)
	}
	return results
}

func TestTake(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{Clock: atNoon})
	limit := perWindow(3, time.Hour)
	for i := range int64(3) {
		want := headgate.Result{
			Allowed: true, Granted: 1, Remaining: 2 - i, ResetAfter: time.Hour, UnusedAfter: time.Hour, Time: noon, Nodes: 1,
			Receipt: headgate.Receipt{Units: 1, Mark: noon.UnixMicro()},
		}
		if got := charge(t, store, limit, 1); got != want {
			t.Errorf("charge %d:\n got %+v\nwant %+v", i+1, got, want)
		}
	}
	want := headgate.Result{RetryAfter: time.Hour, ResetAfter: time.Hour, UnusedAfter: time.Hour, Time: noon, Nodes: 1}
	if got := charge(t, store, limit, 1); got != want {
		t.Errorf("charge 4:\n got %+v\nwant %+v", got, want)
	}
	if got := charge(t, store, limit, 2); got.Remaining != 2 {
		t.Errorf("another subject has %d units left", got.Remaining)
	}
	if n := store.Len(); n != 2 {
		t.Errorf("%d counters, want 2", n)
	}
	if shard := store.Shard(nth(1)); shard != 0 {
		t.Errorf("subject is in shard %d of one", shard)
	}
}

func TestTakeRejectsTooFewResults(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	charges := make([]headgate.Charge, 2)
	if err := store.Take(t.Context(), charges, make([]headgate.Result, 1)); err == nil {
		t.Error("two charges were decided into one result")
	}
	if err := store.Take(t.Context(), nil, nil); err != nil {
		t.Errorf("no charges: %v", err)
	}
}

// TestTakeIgnoresContext checks that a canceled context does not prevent a decision, which takes no time in memory.
func TestTakeIgnoresContext(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res, err := headgate.Take(ctx, store, headgate.PerHour(1), "test", "a"); err != nil || !res.Allowed {
		t.Errorf("with a canceled context: %+v, %v", res, err)
	}
}

// TestTakeMatchesDecide compares requests with many charges, several of them on one counter, with headgate.Decide over a
// map of states.
func TestTakeMatchesDecide(t *testing.T) {
	t.Parallel()
	type counter struct {
		subject headgate.Subject
		counter headgate.Counter
	}
	limits := []headgate.Limit{
		headgate.PerMinute(30),
		{Algorithm: headgate.LeakyBucket, Count: 100, Window: time.Second},
		perWindow(20, 10*time.Second),
		{Algorithm: headgate.SlidingWindow, Count: 20, Window: 10 * time.Second},
		{Algorithm: headgate.SlidingLog, Count: 20, Window: 10 * time.Second},
	}
	r := rand.New(rand.NewPCG(1, 2))
	now := noon
	store := memstore.New(memstore.Options{Clock: func() time.Time { return now }})
	held := map[counter]headgate.State{}
	for step := range 5_000 {
		now = now.Add(time.Duration(r.IntN(300)) * time.Millisecond)
		charges := make([]headgate.Charge, 1+r.IntN(12))
		states, want := make([]headgate.State, len(charges)), make([]headgate.Result, len(charges))
		for i := range charges {
			which := r.IntN(len(limits))
			charges[i] = headgate.Charge{
				Subject: nth(r.Uint64N(3)), Counter: headgate.Counter(which), Limit: limits[which],
				Cost: r.Int64N(4), AtLeast: r.Int64N(2), Observe: r.IntN(4) == 0, MaxDelay: time.Second,
			}
			states[i] = held[counter{charges[i].Subject, charges[i].Counter}]
		}
		headgate.Decide(charges, states, want, now)
		for i := range slices.Backward(charges) { // backwards, since the first charge on a counter has its state
			held[counter{charges[i].Subject, charges[i].Counter}] = states[i]
			want[i].Nodes = 1
		}
		if got := take(t, store, charges...); !slices.Equal(got, want) {
			t.Fatalf("step %d:\n got %+v\nwant %+v", step, got, want)
		}
	}
}

func TestOnlyRecordedChargesAreKept(t *testing.T) {
	t.Parallel()
	limit := perWindow(3, time.Hour)
	for name, c := range map[string]headgate.Charge{
		"peek":                {Limit: limit},
		"more than ever fits": {Limit: limit, Cost: 4},
		"invalid limit":       {Cost: 1},
		"refund of nothing":   {Limit: limit, Cost: 1, Refund: headgate.Receipt{Units: 1, Mark: 1, Time: 1}},
	} {
		store := memstore.New(memstore.Options{Clock: atNoon})
		take(t, store, c)
		if n := store.Len(); n != 0 {
			t.Errorf("%s: %d counters are kept", name, n)
		}
	}
	store := memstore.New(memstore.Options{Clock: atNoon})
	take(t, store,
		headgate.Charge{Subject: nth(1), Limit: limit, Cost: 1},
		headgate.Charge{Subject: nth(2), Limit: limit, Cost: 4})
	if n := store.Len(); n != 0 {
		t.Errorf("denied request: %d counters are kept", n)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	now := noon
	store := memstore.New(memstore.Options{Clock: func() time.Time { return now }})
	limit := perWindow(1, time.Minute)
	for _, step := range []struct {
		pass    time.Duration
		allowed bool
	}{{0, true}, {59_999 * time.Millisecond, false}, {time.Millisecond, true}, {time.Second, false}} {
		now = now.Add(step.pass)
		if res := charge(t, store, limit, 1); res.Allowed != step.allowed || !res.Time.Equal(now) {
			t.Errorf("at %s: %+v", now, res)
		}
	}

	store = memstore.New(memstore.Options{})
	before := time.Now().Truncate(time.Microsecond)
	res := charge(t, store, limit, 1)
	if res.Time.Before(before) || res.Time.After(time.Now()) {
		t.Errorf("without a clock it is %s, want %s", res.Time, before)
	}
}

func TestExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{Clock: slowNoon})
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 50 {
				if charge(t, store, perWindow(1_000, time.Hour), 1).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := allowed.Load(); n != 1_000 {
		t.Errorf("%d of 1,000 were allowed", n)
	}
}

// TestAtomicOverSubjects charges pairs of subjects, in either order, that are always charged together. A peek at a pair must see
// both equal, and in the end each has been charged what was allowed.
func TestAtomicOverSubjects(t *testing.T) {
	t.Parallel()
	const pairs, requests = 10, 3_000
	store := memstore.New(memstore.Options{Clock: slowNoon})
	roomy, tight := perWindow(1_000_000, time.Hour), perWindow(100, time.Hour)
	both := func(pair uint64, cost int64) []headgate.Charge {
		return []headgate.Charge{
			{Subject: nth(2 * pair), Limit: roomy, Cost: cost},
			{Subject: nth(2*pair + 1), Limit: roomy, Cost: cost},
		}
	}
	var allowed [pairs]atomic.Int64
	var all sync.WaitGroup
	for worker := range uint64(8) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(worker, 0))
			for range requests {
				pair := r.Uint64N(pairs)
				if worker%4 == 0 {
					if seen := take(t, store, both(pair, 0)...); seen[0].Remaining != seen[1].Remaining {
						t.Errorf("pair %d has %d and %d units left", pair, seen[0].Remaining, seen[1].Remaining)
					}
					continue
				}
				charges := both(pair, 1)
				if r.IntN(2) == 0 { // exhausted after 100 requests
					charges = append(charges, headgate.Charge{Subject: nth(1_000 + r.Uint64N(pairs)), Limit: tight, Cost: 1})
				}
				r.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
				if results := take(t, store, charges...); results[0].Granted > 0 {
					allowed[pair].Add(1)
				}
			}
		})
	}
	all.Wait()
	for pair := range uint64(pairs) {
		want := roomy.Count - allowed[pair].Load()
		for i, res := range take(t, store, both(pair, 0)...) {
			if res.Remaining != want {
				t.Errorf("subject %d of pair %d has %d units left, want %d", i, pair, res.Remaining, want)
			}
		}
	}
}

// TestCap charges far more counters than MaxEntries. None expires, so each is either kept or evicted.
func TestCap(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	const maxEntries, workers = 100_000, 2
	keys := uint64(10_000_000)
	if testing.Short() || testenv.Race() {
		keys /= 20
	}
	store := memstore.New(memstore.Options{MaxEntries: maxEntries, Clock: atNoon})
	var all sync.WaitGroup
	for worker := range uint64(workers) {
		all.Go(func() {
			charges := []headgate.Charge{{Limit: headgate.PerHour(1), Cost: 1}}
			results := make([]headgate.Result, 1)
			for n := worker; n < keys; n += workers {
				charges[0].Subject = nth(n)
				if err := store.Take(t.Context(), charges, results); err != nil || !results[0].Allowed {
					t.Errorf("a new counter denies: %+v, %v", results[0], err)
					return
				}
				if n%10_000 == 0 && store.Len() > maxEntries {
					t.Errorf("%d counters are held after %d were charged", store.Len(), n)
				}
			}
		})
	}
	all.Wait()
	// With many more counters than slots, every shard is full.
	if held, evicted := store.Len(), store.Evicted(); held != maxEntries || uint64(held)+uint64(evicted) != keys {
		t.Errorf("%d held and %d evicted of %d", held, evicted, keys)
	}
}

// TestNoEvictionUpToMaxEntries keeps MaxEntries counters, however they are distributed over the shards.
func TestNoEvictionUpToMaxEntries(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	sizes := []int{1, 2, 100, 2_048, 10_000, 100_000}
	if !testing.Short() && !testenv.Race() {
		sizes = append(sizes, 1_000_000)
	}
	for _, maxEntries := range sizes {
		store := memstore.New(memstore.Options{MaxEntries: maxEntries, Clock: atNoon})
		limit := headgate.PerHour(2)
		for n := range uint64(maxEntries) {
			charge(t, store, limit, n)
		}
		if held, evicted := store.Len(), store.Evicted(); held != maxEntries || evicted != 0 {
			t.Errorf("MaxEntries %d: %d held, %d evicted of as many", maxEntries, held, evicted)
		}
		for n := range uint64(maxEntries) {
			if remaining(t, store, limit, n) != 1 {
				t.Fatalf("MaxEntries %d: counter %d was lost", maxEntries, n)
			}
		}
		charge(t, store, limit, uint64(maxEntries))
		if held, evicted := store.Len(), store.Evicted(); held != maxEntries || evicted != 1 {
			t.Errorf("MaxEntries %d: %d held, %d evicted of one more", maxEntries, held, evicted)
		}
	}
}

// TestOnlyExpiredCountersAreDropped creates counters that expire early and late, several per call, and never more live ones than
// MaxEntries: no live counter is evicted, whichever shard the expired ones are in.
func TestOnlyExpiredCountersAreDropped(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	spans := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute, time.Hour}
	for seed, maxEntries := range []int{7, 1_000, 5_000, 20_000} {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		now := noon
		store := memstore.New(memstore.Options{MaxEntries: maxEntries, Clock: func() time.Time { return now }})
		ends := map[int64]int{} // how many expire in which second
		alive, full := 0, 0
		for next := uint64(0); next < uint64(12*maxEntries); {
			if r.IntN(maxEntries) == 0 || alive == maxEntries {
				now = now.Add(time.Duration(1+r.IntN(4)) * time.Second)
				for second, n := range ends {
					if second <= now.Unix() {
						alive -= n
						delete(ends, second)
					}
				}
			}
			var charges []headgate.Charge
			for range min(1+r.IntN(5), maxEntries-alive) {
				span := spans[r.IntN(len(spans))]
				charges = append(charges, headgate.Charge{Subject: nth(next), Limit: perWindow(2, span), Cost: 1})
				next++
				alive++
				ends[now.Add(span).Unix()]++
			}
			take(t, store, charges...)
			if alive == maxEntries {
				full++
			}
			if evicted := store.Evicted(); evicted != 0 {
				t.Fatalf("seed %d, MaxEntries %d: %d alive, %d evicted", seed, maxEntries, alive, evicted)
			}
		}
		if held := store.Len(); held > maxEntries || full < 3 {
			t.Errorf("seed %d, MaxEntries %d: %d held; it was full %d times", seed, maxEntries, held, full)
		}
	}
}

// TestOnlyExpiredCountersAreDroppedConcurrently does the same with several goroutines: no long-lived counter is lost while others
// are created and expire.
func TestOnlyExpiredCountersAreDroppedConcurrently(t *testing.T) {
	t.Parallel()
	const maxEntries, lasting, each, workers = 20_000, 10_000, 9_000, 4
	var now atomic.Int64
	now.Store(noon.Unix())
	store := memstore.New(memstore.Options{MaxEntries: maxEntries, Clock: func() time.Time { return time.Unix(now.Load(), 0) }})
	long, short := headgate.PerDay(2), perWindow(2, time.Second)
	for n := range uint64(lasting) {
		charge(t, store, long, n)
	}
	for round := range uint64(8) {
		var all sync.WaitGroup
		for worker := range uint64(workers) {
			all.Go(func() {
				for n := worker; n < each; n += workers {
					charge(t, store, short, lasting+round*each+n)
				}
			})
		}
		all.Wait()
		if held, evicted := store.Len(), store.Evicted(); held > maxEntries || evicted != 0 {
			t.Fatalf("round %d: %d held, %d evicted", round, held, evicted)
		}
		now.Add(1)
	}
	for n := range uint64(lasting) {
		if remaining(t, store, long, n) != 1 {
			t.Fatalf("counter %d was lost", n)
		}
	}
}

func TestSmallCaps(t *testing.T) {
	t.Parallel()
	for maxEntries := 1; maxEntries < 50; maxEntries++ {
		store := memstore.New(memstore.Options{MaxEntries: maxEntries, Clock: atNoon})
		for n := range uint64(100) {
			charge(t, store, headgate.PerHour(2), n)
			if left := remaining(t, store, headgate.PerHour(2), n); left != 1 {
				t.Fatalf("MaxEntries %d: the counter charged last was not kept", maxEntries)
			}
		}
		if held, evicted := store.Len(), store.Evicted(); held != maxEntries || evicted != int64(100-maxEntries) {
			t.Errorf("MaxEntries %d: %d held, %d evicted of 100", maxEntries, held, evicted)
		}
	}
}

// TestExpiredAreDroppedWithoutTraffic checks that counters that are not charged again are dropped as others are created.
func TestExpiredAreDroppedWithoutTraffic(t *testing.T) {
	t.Parallel()
	now := noon
	for name, test := range map[string]struct{ maxEntries, old, fresh int }{
		"while growing": {maxEntries: 100_000, old: 20_000, fresh: 40_000},
		"when full":     {maxEntries: 5_000, old: 10_000, fresh: 4_000},
	} {
		store := memstore.New(memstore.Options{MaxEntries: test.maxEntries, Clock: func() time.Time { return now }})
		for n := range test.old {
			charge(t, store, perWindow(1, time.Minute), uint64(n))
		}
		before := store.Evicted()
		if held := store.Len(); held != min(test.old, test.maxEntries) {
			t.Fatalf("%s: %d counters are held, want %d", name, held, min(test.old, test.maxEntries))
		}
		now = now.Add(time.Minute)
		for n := range test.fresh {
			charge(t, store, perWindow(1, time.Hour), uint64(test.old+n))
		}
		if held, evicted := store.Len(), store.Evicted()-before; held != test.fresh || evicted != 0 {
			t.Errorf("%s: %d counters are held, want %d; %d were evicted", name, held, test.fresh, evicted)
		}
	}
}

func TestDropsExpiredBeforeEvictingLive(t *testing.T) {
	t.Parallel()
	const half = 500
	now := noon
	store := memstore.New(memstore.Options{MaxEntries: 2 * half, Clock: func() time.Time { return now }})
	short, long := perWindow(2, time.Minute), perWindow(2, time.Hour)
	for n := range uint64(half) {
		charge(t, store, short, 2*n)
		charge(t, store, long, 2*n+1)
	}
	now = now.Add(time.Minute)
	for n := range uint64(half / 2) {
		charge(t, store, long, 2*half+n)
	}
	if held, evicted := store.Len(), store.Evicted(); held > 2*half || evicted != 0 {
		t.Errorf("%d held, %d evicted", held, evicted)
	}
	for n := range uint64(half) {
		if remaining(t, store, long, 2*n+1) != 1 {
			t.Errorf("counter %d was lost", n)
		}
	}
}

func TestEvictsEarliestExpiry(t *testing.T) {
	t.Parallel()
	const half = 500
	store := memstore.New(memstore.Options{MaxEntries: 2 * half, Clock: atNoon})
	short, long := perWindow(2, time.Minute), perWindow(2, time.Hour)
	for n := range uint64(half) {
		charge(t, store, short, 2*n)
		charge(t, store, long, 2*n+1)
	}
	for n := range uint64(half / 2) {
		charge(t, store, long, 2*half+n)
	}
	lost := 0
	for n := range uint64(half) {
		if remaining(t, store, long, 2*n+1) != 1 {
			lost++
		}
	}
	// A long-lived counter is evicted only if no short-lived one is in the sample.
	if held, evicted := store.Len(), store.Evicted(); held != 2*half || evicted != half/2 || lost > half/20 {
		t.Errorf("%d held, %d evicted, of the long-lived %d", held, evicted, lost)
	}
}

// TestFloodEvictsItself checks that a client cannot get a fresh allowance by evicting its counter with a flood of other keys.
func TestFloodEvictsItself(t *testing.T) {
	t.Parallel()
	limit := headgate.PerMinute(60)
	store := memstore.New(memstore.Options{MaxEntries: 1_000, Clock: atNoon})
	for range 30 {
		charge(t, store, limit, 0)
	}
	for n := range uint64(20_000) {
		charge(t, store, limit, n+1)
	}
	if left := remaining(t, store, limit, 0); left != 30 {
		t.Errorf("%d units are left on the counter in use, want 30", left)
	}
}

func TestTakeDoesNotAllocate(t *testing.T) {
	store := memstore.New(memstore.Options{})
	for name, charges := range map[string][]headgate.Charge{
		"one charge":     {{Cost: 1}},
		"three charges":  {{Counter: 1, Cost: 1}, {Counter: 2, Cost: 1}, {Counter: 3, Cost: 1}},
		"three subjects": {{Subject: nth(1), Cost: 1}, {Subject: nth(2), Cost: 1}, {Subject: nth(3), Cost: 1}},
		"eight charges":  {{Counter: 1}, {Counter: 2}, {Counter: 3}, {Counter: 4}, {Counter: 5}, {Counter: 6}, {Counter: 7}, {Counter: 8}},
		"denied":         {{Counter: 9, Cost: 1}, {Counter: 10, Cost: 2_000_000}},
	} {
		for i := range charges {
			charges[i].Limit = headgate.PerHour(1_000_000)
		}
		results := make([]headgate.Result, len(charges))
		ctx := t.Context()
		allocs := testing.AllocsPerRun(1_000, func() {
			if err := store.Take(ctx, charges, results); err != nil {
				t.Error(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}
