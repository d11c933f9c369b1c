package check

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// requests are requests of a tenant that may have 3 in flight.
type requests struct {
	*testing.T
	slots *Slots
	*headgate.Limiter
}

func newRequests(t *testing.T, slots *Slots) *requests {
	t.Helper()
	more := headgate.Concurrent(50)
	more.Window = time.Minute
	l, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "exports", By: []string{"tenant"}, Strict: true,
		Limits: map[string]headgate.Limit{"a": more, "b": headgate.Concurrent(3)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &requests{t, slots, l}
}

var export = headgate.Request{Attributes: headgate.Attributes{"tenant": "acme"}}

func (r *requests) begin(ctx context.Context) (headgate.Decision, Held, error) {
	return r.slots.Begin(ctx, export, r.Begin)
}

// expect checks how many requests are in flight, by the table and by the store, once releases are recorded.
func (r *requests) expect(when string, inFlight int64) {
	r.Helper()
	synctest.Wait()
	time.Sleep(time.Millisecond)
	d, err := r.Peek(r.Context(), export)
	if err != nil || len(d.Limits) != 2 {
		r.Fatalf("%s: %+v: %v", when, d, err)
	}
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	used := d.Limits[0].Limit.Count - d.Limits[0].Remaining
	if used != inFlight || int64(len(r.slots.open)) != inFlight || r.slots.leased && int64(len(r.slots.due)) != inFlight {
		r.Errorf("%s: %d in use, %d in the table and %d to expire, want %d",
			when, used, len(r.slots.open), len(r.slots.due), inFlight)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t, NewSlots())
		const lease = 10 * time.Second
		_, first, _ := r.begin(t.Context())
		_, second, _ := r.begin(t.Context())
		time.Sleep(time.Millisecond)
		_, third, err := r.begin(t.Context())
		if err != nil || len(third.Token) != 16 || third.Lease != lease || bytes.Equal(third.Token, second.Token) {
			t.Errorf("%+v and %+v: %v", second, third, err)
		}
		if d, held, err := r.begin(t.Context()); err != nil || d.Allowed || held.Token != nil || d.DeniedBy().Rule != "exports" {
			t.Errorf("the fourth: %+v, %+v: %v", d, held, err)
		}
		r.expect("three", 3)
		if !r.slots.Release(first.Token, headgate.Outcome{}) || r.slots.Release(first.Token, headgate.Outcome{}) {
			t.Error("the first release must find the slots, and the second must not")
		}
		r.expect("after a release", 2)
		time.Sleep(lease / 2)
		if !r.slots.Renew(second.Token) || r.slots.Renew(first.Token) {
			t.Error("only slots in use can be renewed")
		}
		time.Sleep(lease/2 - 5*time.Millisecond)
		r.expect("before a lease is over", 2)
		time.Sleep(4 * time.Millisecond)
		r.expect("after the lease of the third", 1)
		if r.slots.Renew(third.Token) || r.slots.Release(third.Token, headgate.Outcome{}) {
			t.Error("expired slots are found")
		}
		_, _, _ = r.begin(t.Context())
		r.expect("with another one", 2)
		time.Sleep(lease / 2)
		r.expect("after the lease of the second", 1)
		time.Sleep(lease / 2)
		r.expect("at the end", 0)
	})
}

// TestSlotsUnknown checks tokens that the table has never sent.
func TestSlotsUnknown(t *testing.T) {
	t.Parallel()
	s := NewSlots()
	for _, token := range []string{"", "short", "0123456789abcdef", "0123456789abcdef0"} {
		if s.Release([]byte(token), headgate.Outcome{}) || s.Renew([]byte(token)) {
			t.Errorf("%q is found", token)
		}
	}
}

// TestSlotsNotKept checks that nothing stays in use if the caller does not get the token.
func TestSlotsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t, newSlots(1))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if d, held, err := r.begin(gone); err != nil || !d.Allowed || held.Token != nil {
			t.Errorf("the caller has hung up: %+v, %+v: %v", d, held, err)
		}
		r.expect("after the caller has hung up", 0)
		broken := errors.New("broken")
		if _, held, err := r.slots.Begin(t.Context(), export, func(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
			d, _ := r.Begin(ctx, req)
			return d, broken
		}); !errors.Is(err, broken) || held.Token != nil {
			t.Errorf("an engine that fails: %+v: %v", held, err)
		}
		r.expect("after an error", 0)
		_, held, err := r.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d, _, err := r.begin(t.Context()); !errors.Is(err, ErrTooManySlots) || d.Holds() {
			t.Errorf("a full table: %+v: %v", d, err)
		}
		if d, _, err := r.slots.OfStream().Begin(t.Context(), export, r.Begin); !errors.Is(err, ErrTooManySlots) || d.Holds() {
			t.Errorf("a stream with a full table: %+v: %v", d, err)
		}
		r.expect("with a full table", 1)
		r.slots.Release(held.Token, headgate.Outcome{})
		if _, _, err := r.begin(t.Context()); err != nil {
			t.Errorf("after a release: %v", err)
		}
		r.slots.Close()
		r.expect("after Close", 0)
		if d, held, err := r.begin(t.Context()); !errors.Is(err, headgate.ErrUnavailable) || held.Token != nil {
			t.Errorf("after Close: %+v, %+v: %v", d, held, err)
		}
		r.expect("after Begin after Close", 0)
		r.slots.Close()
		if n := r.slots.free.Take(2); n != 1 {
			t.Errorf("%d free, want 1", n)
		}
	})
}

// TestSlotsOfStream checks that slots of a stream do not expire, and are released with the stream.
func TestSlotsOfStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newSlots(3)
		r := newRequests(t, all.OfStream())
		_, first, _ := r.begin(t.Context())
		_, _, _ = r.begin(t.Context())
		time.Sleep(time.Hour)
		r.expect("after an hour", 2)
		if all.Release(first.Token, headgate.Outcome{}) || all.Renew(first.Token) || r.slots.Renew(first.Token) {
			t.Error("slots of a stream are found outside of it, or renewed")
		}
		if !r.slots.Release(first.Token, headgate.Outcome{}) {
			t.Error("slots of the stream are not found")
		}
		r.expect("after a release", 1)
		r.slots.Close()
		r.expect("after the stream", 0)
		if n := all.free.Take(4); n != 3 {
			t.Errorf("%d free, want 3", n)
		}
	})
}

// TestSlotsConcurrently begins, renews and releases at once, while slots expire.
func TestSlotsConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t, newSlots(1_000))
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for n := range 200 {
					req := headgate.Request{Attributes: headgate.Attributes{"tenant": strconv.Itoa(i)}}
					_, held, err := r.slots.Begin(t.Context(), req, r.Begin)
					if err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(n%7) * time.Second)
					if held.Token != nil && n%3 > 0 {
						if !r.slots.Renew(held.Token) {
							t.Error("not found")
						}
						time.Sleep(time.Duration(n%5) * time.Second)
						if n%3 == 2 && !r.slots.Release(held.Token, headgate.Outcome{}) {
							t.Error("not found")
						}
					}
				}
			})
		}
		callers.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := r.slots.free.Take(2_000); n != 1_000 || len(r.slots.open) != 0 || len(r.slots.due) != 0 || !r.slots.armed.IsZero() {
			t.Errorf("%d free, %d open, %d to expire, timer %v", n, len(r.slots.open), len(r.slots.due), r.slots.armed)
		}
	})
}
