package regiongrpc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
)

// fakeCounters are the counters of a region.
type fakeCounters struct {
	ref     atomic.Pointer[region.CounterRef]
	credits atomic.Int64
	err     error
}

func (f *fakeCounters) Usage(_ context.Context, ref region.CounterRef) (region.Usage, error) {
	f.ref.Store(&ref)
	return region.Usage{Capacity: 100, Remaining: 30, Lent: 20, Time: time.UnixMicro(5)}, f.err
}

func (f *fakeCounters) Credit(_ context.Context, ref region.CounterRef, units int64) (int64, error) {
	f.ref.Store(&ref)
	f.credits.Add(1)
	return units - 1, f.err
}

// testRef returns the counter of the first loan request.
func testRef(t *testing.T) region.CounterRef {
	t.Helper()
	r := requests(t)[0]
	return region.CounterRef{Subject: r.Subject, Counter: r.Counter, Whole: r.Whole}
}

// TestCounters reads and credits the counter of another region, while a third one does not respond.
func TestCounters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	counters, ref := &fakeCounters{}, testRef(t)
	w.us.ServeCounters(counters)
	w.awaitLoan(t)
	for _, r := range w.eu.Usage(t.Context(), ref) {
		if r.Region == "ap" {
			if r.Err == nil || !strings.Contains(r.Err.Error(), "did not respond") {
				t.Errorf("ap: %+v", r)
			}
			continue
		}
		want := region.Usage{Capacity: 100, Remaining: 30, Lent: 20, Time: time.UnixMicro(5)}
		if r.Err != nil || r.Usage != want || *counters.ref.Load() != ref {
			t.Errorf("%+v about %+v", r, counters.ref.Load())
		}
	}
	for _, r := range w.eu.Credit(t.Context(), ref, map[string]int64{"us": 5}) {
		if want := map[string]int64{"us": 4}[r.Region]; r.Err != nil || r.Credited != want {
			t.Errorf("%+v", r)
		}
	}
	if n := counters.credits.Load(); n != 1 {
		t.Errorf("%d credits", n)
	}
}

// TestCountersProblems checks what an operator learns about a region that cannot respond to a call.
func TestCountersProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	w.awaitLoan(t)
	ref := testRef(t)
	toUS := func(replies []Reply) string {
		for _, r := range replies {
			if r.Region == "us" && r.Err != nil {
				return r.Err.Error()
			}
		}
		return ""
	}
	if got := toUS(w.eu.Usage(t.Context(), ref)); got != errUnsupported.Error() {
		t.Errorf("without counters: %q", got)
	}
	w = newWorld(t, "", nil)
	w.us.ServeCounters(&fakeCounters{err: errors.New("no")})
	w.awaitLoan(t)
	if got := toUS(w.eu.Usage(t.Context(), ref)); got != errStore.Error() {
		t.Errorf("usage without a store: %q", got)
	}
	if got := toUS(w.eu.Credit(t.Context(), ref, map[string]int64{"us": 5})); got != errStore.Error() {
		t.Errorf("credit without a store: %q", got)
	}
	if got := toUS(w.eu.Credit(t.Context(), ref, map[string]int64{"us": headgate.MaxCost + 1})); got != errUnsupported.Error() {
		t.Errorf("too many units: %q", got)
	}
	w.us.options.Subjects++
	for _, replies := range [][]Reply{w.eu.Usage(t.Context(), ref), w.eu.Credit(t.Context(), ref, map[string]int64{"us": 5})} {
		if got := toUS(replies); got != errSecret.Error() {
			t.Errorf("another secret: %q", got)
		}
	}
	w.us.options.Subjects--
	bad := ref
	bad.Whole.Count = -1
	if got := toUS(w.eu.Usage(t.Context(), bad)); got != errUnsupported.Error() {
		t.Errorf("an invalid limit: %q", got)
	}
}

// TestCountersAuthorized checks that only members may read and credit counters.
func TestCountersAuthorized(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(eu, _ *Options) { eu.Own = "ap" })
	w.us.ServeCounters(&fakeCounters{})
	ref := testRef(t)
	for _, r := range append(w.eu.Usage(t.Context(), ref), w.eu.Credit(t.Context(), ref, map[string]int64{"us": 5})...) {
		if r.Region == "us" && (r.Err == nil || !strings.Contains(r.Err.Error(), "certificate")) {
			t.Errorf("%+v", r)
		}
	}
}
