package storewrap

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken is a store with two shards, each of which can be made to fail or to hang.
type broken struct {
	headgate.Store
	failing  [2]atomic.Bool
	hangs    atomic.Bool // ignoring the context
	freed    chan struct{}
	received [2]atomic.Int64
}

func newBroken(t *testing.T) *broken {
	b := &broken{Store: memstore.New(memstore.Options{}), freed: make(chan struct{})}
	t.Cleanup(func() { close(b.freed) })
	return b
}

func (b *broken) Shard(s headgate.Subject) int { return int(s[0] % 2) }

func (b *broken) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if b.hangs.Load() {
		<-b.freed
	}
	var failed error
	var received []headgate.Charge
	var index []int
	for i := range charges {
		p := b.Shard(charges[i].Subject)
		b.received[p].Add(1)
		if b.failing[p].Load() {
			failed = headgate.ErrUnavailable
			results[i] = headgate.Result{Err: failed}
			continue
		}
		received, index = append(received, charges[i]), append(index, i)
	}
	innerResults := make([]headgate.Result, len(received))
	if err := b.Store.Take(ctx, received, innerResults); err != nil {
		return err
	}
	for i, at := range index {
		results[at] = innerResults[i]
	}
	return failed
}

// wrap calls New, and closes the store at the end of the test.
func wrap(t testing.TB, inner headgate.Store, o Options) *Store {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Deadline == 0 {
		o.Deadline = time.Second // a slow machine must not look like a failure
	}
	s := New(inner, o)
	t.Cleanup(s.Close)
	return s
}

func chargeOn(shard int) headgate.Charge {
	for i := range 100 {
		if s := headgate.SubjectOf("part", string(rune('a'+i))); int(s[0]%2) == shard {
			limit := headgate.PerSecond(headgate.MaxCost)
			return headgate.Charge{Subject: s, Counter: headgate.CounterOf("r", "", limit.Algorithm), Limit: limit, Cost: 1, OnStoreFailure: headgate.FailAllow}
		}
	}
	return headgate.Charge{}
}

func take(s headgate.Store, charges ...headgate.Charge) ([]headgate.Result, error) {
	results := make([]headgate.Result, len(charges))
	err := s.Take(context.Background(), charges, results)
	return results, err
}

// log collects log lines.
type log struct{ testenv.Log }

func (l *log) lines() int { return strings.Count(l.String(), "\n") }

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func eventually(t *testing.T, what string, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("never %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// strict is a store that makes all charges strict.
type strict struct{ headgate.Store }

func (s strict) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Strict = true
	}
	return s.Store.Take(ctx, charges, results)
}

// With strict charges, a wrapped store behaves like the inner store.
func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Target {
		var now atomic.Pointer[time.Time]
		store := strict{wrap(t, memstore.New(memstore.Options{Clock: func() time.Time { return *now.Load() }}), Options{})}
		return storetest.Target{Store: store, SetTime: func(at time.Time) { now.Store(&at) }}
	}, 2_000)
}

// A failing shard gets no requests, and the other shard still does. When it answers again, it is used again. Each change is
// logged.
func TestShardsFailIndependently(t *testing.T) {
	t.Parallel()
	b, l := newBroken(t), &log{}
	s := wrap(t, b, Options{Log: l.logger()})
	failing, healthy := chargeOn(1), chargeOn(0)
	for range 100 {
		if _, err := take(s, healthy, failing); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * slotLength) // until these calls are out of the shortest span
	b.failing[1].Store(true)
	for i := 0; s.Stats().ShardsUnavailable == 0; i++ {
		r, err := take(s, healthy, failing)
		if !errors.Is(err, headgate.ErrUnavailable) || r[0].Err != nil || !r[0].Allowed || r[1].Err == nil || i > 10 {
			t.Fatalf("%d: %+v: %v", i, r, err)
		}
	}
	if s.Stats().ShardsUnavailable != 1 || l.lines() != 1 {
		t.Errorf("%d shards unavailable, %d lines", s.Stats().ShardsUnavailable, l.lines())
	}
	before := b.received[1].Load()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		if r, err := take(s, healthy); err != nil || !r[0].Allowed {
			t.Fatalf("%+v: %v", r, err)
		}
		if r, err := take(s, failing); !errors.Is(err, errOpen) || !errors.Is(r[0].Err, errOpen) {
			t.Fatalf("%+v: %v", r, err)
		}
		if r, err := take(s, failing, healthy); !errors.Is(err, errOpen) || r[1].Err != nil || !r[1].Allowed {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	if probes := b.received[1].Load() - before; probes < 1 || probes > 10 {
		t.Errorf("%d probes in half a second", probes)
	}
	b.failing[1].Store(false)
	eventually(t, "recovered", func() bool { r, _ := take(s, failing); return r[0].Err == nil })
	if s.Stats().ShardsUnavailable != 0 || l.lines() != 2 {
		t.Errorf("%d shards unavailable, %d lines", s.Stats().ShardsUnavailable, l.lines())
	}
}

// A few failures among many calls do not open the circuit, nor does a short burst of failures.
func TestBreaker(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		calls func(note func(after time.Duration, good bool))
		want  bool
	}{
		"four failures": {func(note func(time.Duration, bool)) {
			for i := range 4 {
				note(time.Duration(i)*time.Second, false)
			}
		}, false},
		"five failures in ten seconds": {func(note func(time.Duration, bool)) {
			for i := range 5 {
				note(time.Duration(i)*2*time.Second, false)
			}
		}, true},
		"five failures in more": {func(note func(time.Duration, bool)) {
			for i := range 10 {
				note(time.Duration(i)*2600*time.Millisecond, false)
			}
		}, false},
		"as many successes": {func(note func(time.Duration, bool)) {
			for i := range 1_000 {
				note(time.Duration(i)*time.Millisecond, i%2 == 0)
			}
		}, false},
		"a stall of 20 ms at 1,000 a second": {func(note func(time.Duration, bool)) {
			for i := range 2_000 {
				note(time.Duration(i)*time.Millisecond, i < 1_000 || i > 1_020)
			}
		}, false},
		"failure after a long time at 1,000 a second": {func(note func(time.Duration, bool)) {
			for i := range 10_000 {
				note(time.Duration(i)*time.Millisecond, true)
			}
			for i := range 250 {
				note(10*time.Second+time.Duration(i)*time.Millisecond, false)
			}
		}, true},
		"failure after a long time at one a second": {func(note func(time.Duration, bool)) {
			for i := range 10 {
				note(time.Duration(i)*time.Second, true)
			}
			for i := range 9 {
				note(time.Duration(10+i)*time.Second, false)
			}
		}, true},
	} {
		p, opened := newShard(0), false
		test.calls(func(after time.Duration, good bool) { opened = p.record(start.Add(after), good) || opened })
		if opened != test.want {
			t.Errorf("%s: %v", name, opened)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	s, now := newShard(0), time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !s.open.Load() {
				s.record(now, true)
			}
		}
	})
}

// No request waits for a store that hangs, even if the store ignores its context.
func TestHangingStore(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	s := wrap(t, b, Options{Deadline: 20 * time.Millisecond})
	c := chargeOn(0)
	b.failing[0].Store(true)
	if _, err := take(s, c); err == nil {
		t.Fatal("it did not fail")
	}
	b.hangs.Store(true)
	b.failing[0].Store(false)
	for range 20 {
		began := time.Now()
		r, err := take(s, c)
		if elapsed := time.Since(began); elapsed > 500*time.Millisecond || !errors.Is(err, headgate.ErrUnavailable) || r[0].Err == nil {
			t.Fatalf("%v: %+v: %v", elapsed, r, err)
		}
	}
	if s.Stats().ShardsUnavailable != 1 {
		t.Errorf("%d shards unavailable", s.Stats().ShardsUnavailable)
	}
}

// A real Redis hangs, and is killed: decisions continue at once, and Redis is used again soon after it has recovered.
func TestRedis(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	server := testenv.Start(t, testenv.Redis)
	inner, err := redisstore.Open("redis://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inner.Close)
	if err := inner.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := wrap(t, inner, Options{Deadline: 50 * time.Millisecond})
	c := chargeOn(0)
	responds := func() bool { r, err := take(s, c); return err == nil && r[0].Allowed }
	eventually(t, "an answer", responds)
	for name, fault := range map[string]struct{ begin, end func() }{
		"hangs":  {server.Pause, server.Resume},
		"killed": {server.Kill, func() { server.Restart(t) }},
	} {
		fault.begin()
		if elapsed := eventually(t, name, func() bool { _, _ = take(s, c); return s.Stats().ShardsUnavailable == 1 }); elapsed > 3*time.Second {
			t.Errorf("%s: noticed after %v", name, elapsed)
		}
		decisions, slow := 0, 0
		for end := time.Now().Add(time.Second); time.Now().Before(end); decisions++ {
			began := time.Now()
			if _, err := take(s, c); !errors.Is(err, errOpen) {
				t.Fatalf("%s: %v", name, err)
			}
			if elapsed := time.Since(began); elapsed > 100*time.Millisecond {
				slow++
			}
			time.Sleep(time.Millisecond)
		}
		if 10*slow > decisions { // a busy machine may delay some
			t.Errorf("%s: %d of %d decisions took more than 100 ms", name, slow, decisions)
		}
		fault.end()
		if elapsed := eventually(t, name+", recovered", responds); elapsed > 5*time.Second {
			t.Errorf("%s: recovered after %v", name, elapsed)
		} else {
			t.Logf("%s: recovered after %v", name, elapsed)
		}
	}
}

func TestWrongLengths(t *testing.T) {
	t.Parallel()
	s := wrap(t, memstore.New(memstore.Options{}), Options{})
	if err := s.Take(context.Background(), make([]headgate.Charge, 2), make([]headgate.Result, 1)); err == nil {
		t.Error("two charges and one result were taken")
	}
}

// A request whose caller has hung up is charged like any other.
func TestCallerHungUp(t *testing.T) {
	t.Parallel()
	inner := memstore.New(memstore.Options{})
	s := wrap(t, inner, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c, results := hour(headgate.FixedWindow, 10), make([]headgate.Result, 1)
	if err := s.Take(ctx, []headgate.Charge{c}, results); err != nil || results[0].Granted != 1 || used(t, inner, c) != 1 {
		t.Errorf("%+v: %v, %d used", results, err, used(t, inner, c))
	}
}
