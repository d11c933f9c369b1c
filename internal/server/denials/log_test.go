package denials

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

func TestDenialsOfTenSecondsAreOneRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, headgate.Rule{ID: "login", By: []string{"user"}})
		began := time.Now().UTC()
		w.check(t, 2, headgate.Attributes{"user": "ann"})
		time.Sleep(9 * time.Second)
		w.check(t, 3, headgate.Attributes{"user": "ann"})
		w.check(t, 2, headgate.Attributes{"user": "bob"})
		r := w.one(t, Query{Attributes: headgate.Attributes{"user": "ann"}})
		if r.Count != 4 || !r.First.Equal(began) || r.Last.Sub(r.First) != 9*time.Second {
			t.Errorf("%+v", r)
		}
		w.one(t, Query{Attributes: headgate.Attributes{"user": "ann"}, Since: r.Last})
		if found := w.Result(Query{Since: r.Last.Add(1)}).Records; len(found) > 0 {
			t.Errorf("later ones: %+v", found)
		}
		time.Sleep(time.Second)
		w.check(t, 1, headgate.Attributes{"user": "ann"})
		found := w.Result(Query{Attributes: headgate.Attributes{"user": "ann"}}).Records
		if len(found) != 2 || found[0].Count != 1 || found[1].Count != 4 {
			t.Errorf("%+v", found)
		}
	})
}

func TestOnlyDenialsAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true,
		headgate.Rule{ID: "later", By: []string{}, Mode: headgate.Shadow},
		headgate.Rule{ID: "login", Match: headgate.Match{Path: "/login"}, By: []string{}},
	)
	w.check(t, 3, headgate.Attributes{"path": "/"})
	w.check(t, 1, headgate.Attributes{"path": "/login"})
	login := headgate.Request{Attributes: headgate.Attributes{"path": "/login"}}
	if d, err := w.limiter.Peek(t.Context(), login); err != nil || d.Allowed {
		t.Fatal(d, err)
	}
	if _, err := w.limiter.Reserve(t.Context(), headgate.Request{Rule: "none"}, time.Minute); err == nil {
		t.Fatal("no error for an unknown rule")
	}
	if a := w.Result(Query{}); len(a.Records) > 0 {
		t.Fatalf("%+v", a.Records)
	}
	if r, err := w.limiter.Reserve(t.Context(), login, time.Minute); err != nil || r.Decision.Allowed {
		t.Fatal(r, err)
	}
	w.one(t, Query{})
}

// unavailableStore is a store that does not respond.
type unavailableStore struct{}

func (unavailableStore) Shard(headgate.Subject) int { return 0 }

func (unavailableStore) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: headgate.ErrUnavailable}
	}
	return errors.New("unavailable")
}

func TestRecordFields(t *testing.T) {
	t.Parallel()
	quota := headgate.Quota(1, headgate.Month, nil)
	w := newWorld(t, false, headgate.Rule{
		ID: "exports", By: []string{"user"}, Limit: headgate.PerHour(5),
		Tiers: map[string]headgate.Plan{"free": {Limit: headgate.PerMinute(2)}},
	}, headgate.Rule{
		ID: "plan", Match: headgate.Match{Path: "/plan"}, By: []string{"tenant"}, OnMissing: headgate.DenyMissing,
		Limits: map[string]headgate.Limit{"month": quota},
	})
	ctx := context.WithValue(t.Context(), tracing{}, "4bf92f3577b34da6a3ce929d0e0e4736")
	check := func(cost int64, a headgate.Attributes) {
		if _, err := w.limiter.Check(ctx, headgate.Request{Attributes: a, Cost: cost}); err != nil {
			t.Fatal(err)
		}
	}
	check(1, headgate.Attributes{"user": "ann", "tier": "free"})
	check(2, headgate.Attributes{"user": "ann", "tier": "free"})
	r := w.one(t, Query{Rule: "exports"})
	r.First, r.Last, r.Subject = time.Time{}, time.Time{}, ""
	wait := *r.RetryAfter
	r.RetryAfter = nil
	got, want := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", Record{
		Count: 1, Node: "n1", Rule: "exports", Limit: "2/minute", Origin: "tier", Attributes: headgate.Attributes{"tier": "free"},
		Cost: 2, Remaining: 1, Path: headgate.PathStore, RulesVersion: w.limiter.Rules().Version(),
		TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
	})
	if got != want || wait < 29 || wait > 30 {
		t.Errorf("%s\nis not\n%s\nwait %v", got, want, wait)
	}
	check(6, headgate.Attributes{"user": "bob"})
	if r := w.one(t, Query{Attributes: headgate.Attributes{"user": "bob"}}); r.RetryAfter != nil || r.Origin != "rule" {
		t.Errorf("a request over the capacity: %+v", r)
	}
	check(1, headgate.Attributes{"user": "cid", "path": "/plan"})
	r = w.one(t, Query{Rule: "plan"})
	if r.Missing != "tenant" || r.Path != headgate.PathRules || r.Name != "month" || r.RetryAfter != nil {
		t.Errorf("a missing attribute: %+v", r)
	}
	unavailable := newWorldOn(t, unavailableStore{}, false, headgate.Rule{ID: "a", By: []string{}, OnStoreFailure: headgate.FailDeny})
	unavailable.check(t, 1, nil)
	if r := unavailable.one(t, Query{}); r.Path != headgate.PathFailed {
		t.Errorf("an unavailable store: %+v", r)
	}
}

// TestClientsOfOneSubject checks that each client of a subject has its own records, until there are too many.
func TestClientsOfOneSubject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, headgate.Rule{ID: "everything", By: []string{}})
		w.check(t, 1, nil)
		user := func(i int) headgate.Attributes { return headgate.Attributes{"user": strconv.Itoa(i)} }
		for i := range maxClients + 100 {
			w.check(t, 2, user(i))
		}
		if a := w.Result(Query{}); len(a.Records) != maxClients || a.Unrecorded != 0 {
			t.Fatalf("%d records, %d unrecorded", len(a.Records), a.Unrecorded)
		}
		if r := w.one(t, Query{Attributes: user(0)}); r.Count != 2 || r.Others != 200 {
			t.Errorf("the first: %+v", r)
		}
		if r := w.one(t, Query{Attributes: user(maxClients - 1)}); r.Count != 2 || r.Others != 0 {
			t.Errorf("the last: %+v", r)
		}
		time.Sleep(span)
		w.check(t, 1, user(maxClients))
		w.one(t, Query{Attributes: user(maxClients)})
	})
}

func TestNewRecordsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		began := time.Now()
		n := 0
		deny := func(times int) {
			for range times {
				w.Observe(t.Context(), denial(strconv.Itoa(n)))
				n++
			}
		}
		deny(700)
		check := func(q Query, records int, unrecorded int64) {
			t.Helper()
			q.Limit = maxResult
			if a := w.Result(q); len(a.Records) != records || a.Unrecorded != unrecorded {
				t.Errorf("%d records and %d unrecorded, want %d and %d", len(a.Records), a.Unrecorded, records, unrecorded)
			}
		}
		check(Query{}, 500, 200)
		w.Observe(t.Context(), denial("0")) // already has a record
		check(Query{}, 500, 200)
		time.Sleep(2 * time.Second)
		deny(130)
		check(Query{}, 600, 230)
		time.Sleep(10 * time.Second)
		deny(500)
		if n := len(w.Result(Query{Limit: 2_000}).Records); n != maxResult {
			t.Error(n, "records in a result")
		}
		time.Sleep(10 * time.Second)
		deny(501)
		check(Query{Since: began.Add(15 * time.Second)}, 500, 1)
		check(Query{Since: began.Add(5 * time.Second)}, 1_000, 231) // because its span has not ended
		if w.Unrecorded() != 231 {
			t.Error(w.Unrecorded(), "unrecorded")
		}
		if text := w.lines.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "unrecorded=230") {
			t.Error("want one warning:", text)
		}
		time.Sleep(time.Minute)
		deny(501)
		time.Sleep(time.Minute)
		if text := w.lines.String(); strings.Count(text, "level=WARN") != 2 || !strings.Contains(text, "unrecorded=2\n") {
			t.Error("the remaining denials are not logged")
		}
	})
}

func TestOldestAreEvicted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value string
		times int
	}{
		"many": {"", maxRecords + 1_000},
		"long": {strings.Repeat("x", 1_000), 12_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Rules: newWorld(t, false).options.Rules})
				start := time.Now()
				ob := denial("")
				if c.value != "" {
					for _, name := range storedAttributes {
						ob.Attributes[name] = c.value
					}
				}
				from := func() time.Duration { return l.Result(Query{Limit: 1}).From.Sub(start) }
				for i := range c.times {
					if i == 1_000 && from() != 0 {
						t.Error("evicted too early")
					}
					time.Sleep(20 * time.Millisecond)
					ob.Decision.Limits[0].Subject = headgate.SubjectOf(strconv.Itoa(i))
					l.Observe(t.Context(), &headgate.Observation{Call: ob.Call, Attributes: ob.Attributes, Decision: ob.Decision})
				}
				got, n, bytes, open := from(), 0, 0, 0
				look := func() {
					l.mu.Lock()
					defer l.mu.Unlock()
					n, bytes, open = len(l.records), l.bytes, len(l.open)
				}
				look()
				if n > maxRecords || bytes > maxBytes || n < maxRecords && bytes < maxBytes-5_000 {
					t.Errorf("%d records, %d bytes", n, bytes)
				}
				if want := time.Duration(c.times-n+1) * 20 * time.Millisecond; got != want {
					t.Errorf("complete from %v on, want %v", got, want)
				}
				// Two entries for each record of the last eleven seconds.
				if open > 2*550+2 || l.Unrecorded() > 0 {
					t.Error(open, "are open,", l.Unrecorded(), "unrecorded")
				}
				time.Sleep(2 * span)
				synctest.Wait()
				if look(); open > 0 {
					t.Error(open, "are open when all are complete")
				}
			})
		})
	}
}

func TestCompleteRecordsAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, headgate.Rule{ID: "login", By: []string{"user"}})
		w.check(t, 4, headgate.Attributes{"user": "ann", "method": "POST"})
		time.Sleep(span - 1)
		synctest.Wait()
		if text := w.lines.String(); text != "" {
			t.Fatal("too early:", text)
		}
		w.check(t, 2, headgate.Attributes{"user": "bob"})
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		text := w.lines.String()
		for _, part := range []string{"level=DEBUG msg=denied", " count=3 ", " rule=login ", " limit=1/hour ", "=map[method:POST] "} {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in %s", part, text)
			}
		}
		if strings.Count(text, "\n") != 1 || strings.Contains(text, "ann") {
			t.Error(text)
		}
		time.Sleep(span)
		synctest.Wait()
		if text := w.lines.String(); strings.Count(text, "\n") != 2 {
			t.Error("the second record is not logged:", text)
		}
	})
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 2_000 {
				w.Observe(t.Context(), denial(strconv.Itoa(i%600)))
				if i%100 == 0 {
					w.Result(Query{Attributes: headgate.Attributes{"user": "1"}})
				}
			}
		})
	}
	group.Wait()
	sum := w.Unrecorded()
	for _, r := range w.Result(Query{Limit: maxResult}).Records {
		sum += r.Count
	}
	if sum != 8_000 {
		t.Error(sum, "of 8,000 denials are counted")
	}
}
