package regiongrpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

// home decides charges as a test says, and keeps them.
type home struct {
	mu      sync.Mutex
	charges []headgate.Charge
	result  headgate.Result
	err     error
	before  func()
}

func (h *home) Take(_ context.Context, charges []headgate.Charge, results []headgate.Result) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.charges = append(h.charges, charges...)
	if h.before != nil {
		h.before()
	}
	for i := range results {
		results[i] = h.result
	}
	return h.err
}

func (h *home) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.charges)
}

// charges returns charges of all kinds, with every field that a store uses.
func charges(t testing.TB) []headgate.Charge {
	t.Helper()
	limits := []headgate.Limit{
		{Algorithm: headgate.LeakyBucket, Count: 5, Window: time.Second}, {Algorithm: headgate.SlidingLog, Count: 5, Window: time.Hour},
	}
	for _, r := range requests(t) {
		limits = append(limits, r.Whole)
	}
	receipt := headgate.Receipt{Units: 3, Mark: 1_700_000_000_000_001, Time: 1_700_000_000_000_002, Empty: 1_700_000_000_000_003, Back: 4}
	var all []headgate.Charge
	for _, l := range limits {
		c := headgate.Charge{Subject: headgate.SubjectOf("ann"), Counter: maxCounter, Limit: l}
		for _, change := range []func(*headgate.Charge){
			func(*headgate.Charge) {},
			func(c *headgate.Charge) {
				c.Cost, c.AtLeast, c.MaxDelay, c.Strict = headgate.MaxCost, 7, time.Minute, true
			},
			func(c *headgate.Charge) { c.Cost, c.Observe, c.Twin, c.Critical = 1, true, 5, true },
			func(c *headgate.Charge) { c.Cost, c.Hold, c.Prepaid = 1, headgate.MaxHold, true },
			func(c *headgate.Charge) { c.Cost, c.Release, c.Age = 2, receipt, 3*time.Second },
			func(c *headgate.Charge) { c.Cost, c.Force = 2, true },
			func(c *headgate.Charge) { c.Cost, c.Credit, c.Within = 2, true, 1_700_000_000_000_000 },
			func(c *headgate.Charge) { c.Cost, c.Refund = 2, receipt },
		} {
			changed := c
			change(&changed)
			all = append(all, changed)
		}
	}
	return all
}

// sameCharge compares charges; time zones by name.
func sameCharge(a, b headgate.Charge) bool {
	if a.Limit.TimeZone != nil && b.Limit.TimeZone != nil && a.Limit.TimeZone.String() == b.Limit.TimeZone.String() {
		a.Limit.TimeZone, b.Limit.TimeZone = nil, nil
	}
	return a == b
}

// take sends charges from eu to us.
func (w *world) take(t *testing.T, sent []headgate.Charge, timeout time.Duration) ([]headgate.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	results := make([]headgate.Result, len(sent))
	err := w.eu.Homes()["us"].Take(ctx, sent, results)
	return results, err
}

// awaitHome sends charges until us responds.
func (w *world) awaitHome(t *testing.T) {
	t.Helper()
	eventually(t, "us decides", func() bool {
		_, err := w.take(t, charges(t)[:1], time.Second)
		return err == nil
	})
	w.home.mu.Lock()
	defer w.home.mu.Unlock()
	w.home.charges = nil
}

// TestTake sends charges and results with all fields.
func TestTake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	w.awaitHome(t)
	for _, want := range []headgate.Result{
		{Time: time.UnixMicro(1_700_000_000_000_001).UTC(), RetryAfter: headgate.Never},
		{
			Allowed: true, Granted: 5, Remaining: 7, RetryAfter: time.Second, ResetAfter: 2 * time.Second, UnusedAfter: 3 * time.Second, Delay: 4 * time.Second,
			Time: time.UnixMicro(1_700_000_000_000_001).UTC(), Receipt: headgate.Receipt{Units: 3, Mark: 1, Time: 2, Empty: 3, Back: 4},
		},
	} {
		w.home.result, w.home.charges = want, nil
		sent := charges(t)
		results, err := w.take(t, sent, time.Minute)
		if err != nil || !slices.EqualFunc(w.home.charges, sent, sameCharge) {
			t.Fatalf("%v: received %+v", err, w.home.charges)
		}
		for _, r := range results {
			if r != want {
				t.Fatalf("%+v, want %+v", r, want)
			}
		}
	}
}

// TestTakeFails checks what is known about charges if a call fails: whether they may have been recorded.
func TestTakeFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	w.awaitHome(t)
	one := charges(t)[:1]
	check := func(name string, sent []headgate.Charge, timeout time.Duration, unanswered bool) {
		t.Helper()
		results, err := w.take(t, sent, timeout)
		if !errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, headgate.ErrUnanswered) != unanswered {
			t.Errorf("%s: %v", name, err)
		}
		for _, r := range results {
			if !errors.Is(r.Err, headgate.ErrUnavailable) || errors.Is(r.Err, headgate.ErrUnanswered) != unanswered {
				t.Errorf("%s: %v", name, r.Err)
			}
		}
	}
	w.home.err = region.ErrNotHome
	check("not the home", one, time.Minute, false)
	w.home.err, w.home.result = headgate.ErrUnavailable, headgate.Result{Err: headgate.ErrUnavailable}
	check("the store is unavailable", one, time.Minute, false)
	w.home.result.Err = fmt.Errorf("%w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered)
	check("the store does not answer", one, time.Minute, true)
	w.home.err, w.home.result = nil, headgate.Result{}

	before := w.home.count()
	check("too many charges", slices.Repeat(one, maxCharges+1), time.Minute, false)
	invalid := one[0]
	invalid.Cost = headgate.MaxCost + 1
	check("invalid", []headgate.Charge{invalid}, time.Minute, false)
	if w.home.count() != before {
		t.Error("us has decided them")
	}

	release := make(chan struct{})
	w.home.before = func() { <-release }
	check("late", one, 200*time.Millisecond, true)
	close(release)
	eventually(t, "the call ends", func() bool { return w.home.count() > before })

	w.call(t, "127.0.0.3:1") // nothing listens there
	check("no connection", one, time.Minute, false)
	w.call(t, apHost+":1")
	check("no connection in time", one, time.Nanosecond, false)
}

// TestTakeRejects sends charges that this version must not count.
func TestTakeRejects(t *testing.T) {
	t.Parallel()
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	for name, change := range map[string]func(*regionv1.TakeRequest){
		"unknown field of the request": func(m *regionv1.TakeRequest) { m.ProtoReflect().SetUnknown(unknown) },
		"unknown field of a charge":    func(m *regionv1.TakeRequest) { m.Charges[0].ProtoReflect().SetUnknown(unknown) },
		"unknown field of a limit":     func(m *regionv1.TakeRequest) { m.Charges[0].Limit.ProtoReflect().SetUnknown(unknown) },
		"unknown field of a receipt": func(m *regionv1.TakeRequest) {
			m.Charges[0].Refund = &regionv1.Receipt{Units: 1}
			m.Charges[0].Refund.ProtoReflect().SetUnknown(unknown)
		},
		"too many":             func(m *regionv1.TakeRequest) { m.Charges = slices.Repeat(m.Charges, maxCharges+1) },
		"no limit":             func(m *regionv1.TakeRequest) { m.Charges[0].Limit = nil },
		"unknown algorithm":    func(m *regionv1.TakeRequest) { m.Charges[0].Limit.Algorithm = 77 },
		"concurrency":          func(m *regionv1.TakeRequest) { m.Charges[0].Limit.Algorithm = uint32(headgate.Concurrency) },
		"unknown align":        func(m *regionv1.TakeRequest) { m.Charges[0].Limit.Align = 77 },
		"short subject":        func(m *regionv1.TakeRequest) { m.Charges[0].Subject = m.Charges[0].Subject[1:] },
		"large counter":        func(m *regionv1.TakeRequest) { m.Charges[0].Counter = 1 << 48 },
		"large twin":           func(m *regionv1.TakeRequest) { m.Charges[0].Twin = 1 << 48 },
		"negative cost":        func(m *regionv1.TakeRequest) { m.Charges[0].Cost = -1 },
		"at least more":        func(m *regionv1.TakeRequest) { m.Charges[0].AtLeast = 2 },
		"negative age":         func(m *regionv1.TakeRequest) { m.Charges[0].AgeUs = -1 },
		"long hold":            func(m *regionv1.TakeRequest) { m.Charges[0].HoldUs = math.MaxInt64 },
		"hold above the limit": func(m *regionv1.TakeRequest) { m.Charges[0].HoldUs = headgate.MaxHold.Microseconds() + 1 },
		"negative delay":       func(m *regionv1.TakeRequest) { m.Charges[0].MaxDelayUs = -1 },
		"negative within":      func(m *regionv1.TakeRequest) { m.Charges[0].WithinUs = -1 },
		"empty receipt":        func(m *regionv1.TakeRequest) { m.Charges[0].Release = &regionv1.Receipt{} },
		"negative mark":        func(m *regionv1.TakeRequest) { m.Charges[0].Release = &regionv1.Receipt{Units: 1, Mark: -1} },
		"large receipt":        func(m *regionv1.TakeRequest) { m.Charges[0].Refund = &regionv1.Receipt{Units: headgate.MaxCost + 1} },
	} {
		c := headgate.Charge{Subject: headgate.SubjectOf("ann"), Limit: headgate.PerHour(5), Cost: 1}
		m := &regionv1.TakeRequest{From: "eu", Charges: []*regionv1.Charge{chargeMessage(&c)}}
		var d decoder
		if _, problem := d.charges(transmit(t, m, &regionv1.TakeRequest{})); problem != "" {
			t.Fatal(problem)
		}
		change(m)
		if _, problem := d.charges(transmit(t, m, &regionv1.TakeRequest{})); problem == "" {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestTakeRequiresMember checks that only members decide charges here, and none in the name of another one.
func TestTakeRequiresMember(t *testing.T) {
	t.Parallel()
	for _, claims := range []string{"ap", "us", "mars", "", strings.Repeat("x", 1000)} {
		w := newWorld(t, "", nil)
		w.awaitHome(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := w.eu.links[1].client.Take(ctx, &regionv1.TakeRequest{From: claims, Charges: []*regionv1.Charge{chargeMessage(&charges(t)[0])}})
		cancel()
		if status.Code(err) != codes.PermissionDenied || w.home.count() != 0 {
			t.Errorf("%q: %v, %d charges decided", claims, err, w.home.count())
		}
	}
	w := newWorld(t, "", nil)
	w.euID.use(certificateFor(t, newAuthority(t), euHost), w.ca)
	w.call(t, w.listener.Addr().String())
	_, err := w.take(t, charges(t)[:1], 3*time.Second)
	if !errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, headgate.ErrUnanswered) || w.home.count() != 0 {
		t.Errorf("other authority: %v, %d charges decided", err, w.home.count())
	}
}
