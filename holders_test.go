package headgate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// begin begins a request of the tenant, which must be allowed.
func begin(t *testing.T, l *headgate.Limiter) headgate.Decision {
	t.Helper()
	d, err := l.Begin(t.Context(), slotRequest)
	if err != nil || !d.Allowed || !d.Holds() {
		t.Fatalf("allowed %t, holds %t, %v", d.Allowed, d.Holds(), err)
	}
	return d
}

// TestReleaseOwn checks that units whose requests never end are given back, once, and that the end of those requests does not give
// back units of others.
func TestReleaseOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		rule := headgate.Rule{ID: "exports", By: []string{"tenant"}, Limit: headgate.Concurrent(9)}
		l, err := headgate.New(store, rule)
		if err != nil {
			t.Fatal(err)
		}
		other, err := headgate.New(store, rule)
		if err != nil {
			t.Fatal(err)
		}
		stuck := []headgate.Decision{begin(t, l), begin(t, l), begin(t, l)}
		elsewhere := begin(t, other)
		limit := &stuck[0].Limits[0]
		holders := func() []headgate.Holder {
			t.Helper()
			all, err := l.Holders(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		all := holders()
		if len(all) != 2 || all[0].Units != 3 || all[1].Units != 1 || all[0].ID == all[1].ID {
			t.Fatalf("%+v", all)
		}
		if until := all[0].Until; !until.After(time.Now()) || until.After(time.Now().Add(limit.Limit.Window)) {
			t.Errorf("until %s at %s", until, time.Now())
		}
		if units, ok := l.ReleaseOwn(limit.Subject, limit.Counter, all[1].ID); ok || units != 0 {
			t.Errorf("a holder of another limiter: released %d units, %t", units, ok)
		}
		if units, ok := l.ReleaseOwn(limit.Subject, limit.Counter, all[0].ID); !ok || units != 3 {
			t.Errorf("released %d units, %t", units, ok)
		}
		later := []headgate.Decision{begin(t, l), begin(t, l)}
		time.Sleep(time.Second)
		if all = holders(); len(all) != 2 || all[0].Units != 2 || all[1].Units != 1 {
			t.Fatalf("after the release: %+v", all)
		}
		for i := range stuck {
			stuck[i].Done(headgate.Outcome{})
		}
		time.Sleep(3 * limit.Limit.Window)
		if all = holders(); len(all) != 2 || all[0].Units != 2 || all[1].Units != 1 {
			t.Fatalf("after the stuck requests ended: %+v", all)
		}
		if in := l.SlotStats()["exports"].InUse; in != 2 {
			t.Errorf("%d units in use", in)
		}
		for _, d := range append(later, elsewhere) {
			d.Done(headgate.Outcome{})
		}
		time.Sleep(time.Second)
		if all = holders(); len(all) != 0 {
			t.Fatalf("in the end: %+v", all)
		}
		if got := l.SlotStats()["exports"]; got.InUse != 0 || got.Requests != 5 || got.Held < 6*limit.Limit.Window || got.Expired != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestReleaseHolder checks that units of a killed node can be given back before their lease ends, and that a live node sets its own
// again.
func TestReleaseHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 2, headgate.Concurrent(5))
		d := begin(t, f.nodes[0])
		all, err := f.store.inner.Holders(t.Context(), d.Limits[0].Subject, d.Limits[0].Counter)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		if units, err := f.nodes[1].ReleaseHolder(t.Context(), &d.Limits[0], all[0].ID); err != nil || units != 1 || f.used() != 0 {
			t.Fatalf("released %d units, %v; %d are left", units, err, f.used())
		}
		time.Sleep(f.limit.Window / 2)
		if f.used() != 1 {
			t.Errorf("the live node has %d units", f.used())
		}
		d.Done(headgate.Outcome{})
		time.Sleep(time.Second)
		if f.used() != 0 {
			t.Errorf("%d units are left", f.used())
		}
	})
}

// TestSlotStats checks what is counted when the store loses units, and when it is unavailable for longer than a lease.
func TestSlotStats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 1, headgate.Concurrent(5))
		l := f.nodes[0]
		stats := func() headgate.SlotStats { return l.SlotStats()["exports"] }
		d := begin(t, l)
		time.Sleep(10 * f.limit.Window) // heartbeats are not repairs
		if got := stats(); got.InUse != 1 || got.Repairs != 0 || got.Expired != 0 || got.Requests != 0 {
			t.Errorf("while one request runs: %+v", got)
		}
		f.store.flush()
		second := begin(t, l)
		if got := stats(); got.InUse != 2 || got.Repairs != 1 || got.Expired != 0 {
			t.Errorf("after the counters were lost: %+v", got)
		}
		f.store.down.Store(true)
		time.Sleep(2 * f.limit.Window)
		f.store.down.Store(false)
		time.Sleep(time.Second)
		if got := stats(); got.InUse != 2 || got.Expired != 2 {
			t.Errorf("after the store was unavailable: %+v", got)
		}
		d.Done(headgate.Outcome{Duration: time.Minute})
		second.Done(headgate.Outcome{Duration: 2 * time.Second})
		time.Sleep(time.Second)
		if got := stats(); got.InUse != 0 || got.Requests != 2 || got.Held != time.Minute+2*time.Second {
			t.Errorf("in the end: %+v", got)
		}
	})
}

// TestSlotAgenda checks that a busy counter takes no memory for each of its requests, however long its lease is.
func TestSlotAgenda(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.Concurrent(200)
		limit.Window = time.Hour
		f := newSlotFleet(t, 1, 1, limit)
		stop := f.load(1, 10*time.Second, time.Millisecond, 20*time.Millisecond, 1)
		time.Sleep(9 * time.Second)
		if n := f.nodes[0].SlotAgenda(); n > 1 {
			t.Errorf("%d items for one holder", n)
		}
		stop()
		time.Sleep(time.Second)
	})
}

// TestRetryNever checks that a request that can never fit is denied for ever even if some of its units were kept.
func TestRetryNever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 1, headgate.Concurrent(9))
		d := begin(t, f.nodes[0])
		d.Done(headgate.Outcome{})
		costly := slotRequest
		costly.Cost = 10
		if d, err := f.nodes[0].Begin(t.Context(), costly); err != nil || d.Allowed || d.RetryAfter != headgate.Never {
			t.Errorf("allowed %t, retry after %s, %v", d.Allowed, d.RetryAfter, err)
		}
		time.Sleep(time.Second)
	})
}

// TestRetryAfterOfTheLimitThatDenies checks that the estimate is that of the counter whose units are in use.
func TestRetryAfterOfTheLimitThatDenies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := headgate.New(memstore.New(memstore.Options{}),
			headgate.Rule{ID: "all", By: []string{}, Limit: headgate.Concurrent(1000)},
			headgate.Rule{ID: "exports", By: []string{"tenant"}, Limit: headgate.Concurrent(2)})
		if err != nil {
			t.Fatal(err)
		}
		first := begin(t, l)
		time.Sleep(20 * time.Second)
		first.Done(headgate.Outcome{Duration: time.Hour}) // it cannot be longer than since its begin
		all := []headgate.Decision{begin(t, l), begin(t, l)}
		d, err := l.Begin(t.Context(), slotRequest)
		if err != nil || d.Allowed || d.DeniedBy().Rule != "exports" || d.RetryAfter != 10*time.Second {
			t.Errorf("allowed %t, retry after %s, %v", d.Allowed, d.RetryAfter, err)
		}
		for _, d := range all {
			d.Done(headgate.Outcome{})
		}
		time.Sleep(time.Second)
	})
}
