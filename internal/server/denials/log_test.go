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
		w.ask(t, 2, headgate.Attributes{"user": "ann"})
		time.Sleep(9 * time.Second)
		w.ask(t, 3, headgate.Attributes{"user": "ann"})
		w.ask(t, 2, headgate.Attributes{"user": "bob"})
		r := w.one(t, Query{Attributes: headgate.Attributes{"user": "ann"}})
		if r.Count != 4 || !r.First.Equal(began) || r.Last.Sub(r.First) != 9*time.Second {
			t.Errorf("%+v", r)
		}
		w.one(t, Query{Attributes: headgate.Attributes{"user": "ann"}, Since: r.Last})
		if found := w.Answer(Query{Since: r.Last.Add(1)}).Records; len(found) > 0 {
			t.Errorf("later ones: %+v", found)
		}
		time.Sleep(time.Second)
		w.ask(t, 1, headgate.Attributes{"user": "ann"})
		found := w.Answer(Query{Attributes: headgate.Attributes{"user": "ann"}}).Records
		if len(found) != 2 || found[0].Count != 1 || found[1].Count != 4 {
			t.Errorf("%+v", found)
		}
	})
}

func TestWhatIsNoDenialIsNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true,
		headgate.Rule{ID: "later", By: []string{}, Mode: headgate.Shadow},
		headgate.Rule{ID: "login", Match: headgate.Match{Path: "/login"}, By: []string{}},
	)
	w.ask(t, 3, headgate.Attributes{"path": "/"})
	w.ask(t, 1, headgate.Attributes{"path": "/login"})
	login := headgate.Request{Attributes: headgate.Attributes{"path": "/login"}}
	if d, err := w.limiter.Peek(t.Context(), login); err != nil || d.Allowed {
		t.Fatal(d, err)
	}
	if _, err := w.limiter.Reserve(t.Context(), headgate.Request{Rule: "none"}, time.Minute); err == nil {
		t.Fatal("there is no such rule")
	}
	if a := w.Answer(Query{}); len(a.Records) > 0 {
		t.Fatalf("%+v", a.Records)
	}
	if r, err := w.limiter.Reserve(t.Context(), login, time.Minute); err != nil || r.Decision.Allowed {
		t.Fatal(r, err)
	}
	w.one(t, Query{})
}

// broken is a store that does not answer.
type broken struct{}

func (broken) Shard(headgate.Subject) int { return 0 }

func (broken) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: headgate.ErrUnavailable}
	}
	return errors.New("away")
}

func TestRecordSaysWhy(t *testing.T) {
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
	ask := func(cost int64, a headgate.Attributes) {
		if _, err := w.limiter.Check(ctx, headgate.Request{Attributes: a, Cost: cost}); err != nil {
			t.Fatal(err)
		}
	}
	ask(1, headgate.Attributes{"user": "ann", "tier": "free"})
	ask(2, headgate.Attributes{"user": "ann", "tier": "free"})
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
	ask(6, headgate.Attributes{"user": "bob"})
	if r := w.one(t, Query{Attributes: headgate.Attributes{"user": "bob"}}); r.RetryAfter != nil || r.Origin != "rule" {
		t.Errorf("what can never pass: %+v", r)
	}
	ask(1, headgate.Attributes{"user": "cid", "path": "/plan"})
	r = w.one(t, Query{Rule: "plan"})
	if r.Missing != "tenant" || r.Path != headgate.PathRules || r.Name != "month" || r.RetryAfter != nil {
		t.Errorf("what lacks an attribute: %+v", r)
	}
	away := newWorldOn(t, broken{}, false, headgate.Rule{ID: "a", By: []string{}, OnStoreFailure: headgate.FailDeny})
	away.ask(t, 1, nil)
	if r := away.one(t, Query{}); r.Path != headgate.PathFailed {
		t.Errorf("what the store did not answer: %+v", r)
	}
}

// Many clients of one subject: each finds its own denials, until they are too many.
func TestClientsThatAreCountedAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, headgate.Rule{ID: "everything", By: []string{}})
		w.ask(t, 1, nil)
		user := func(i int) headgate.Attributes { return headgate.Attributes{"user": strconv.Itoa(i)} }
		for i := range mostClients + 100 {
			w.ask(t, 2, user(i))
		}
		if a := w.Answer(Query{}); len(a.Records) != mostClients || a.Unrecorded != 0 {
			t.Fatalf("%d records, %d unrecorded", len(a.Records), a.Unrecorded)
		}
		if r := w.one(t, Query{Attributes: user(0)}); r.Count != 2 || r.Others != 200 {
			t.Errorf("the first: %+v", r)
		}
		if r := w.one(t, Query{Attributes: user(mostClients - 1)}); r.Count != 2 || r.Others != 0 {
			t.Errorf("the last: %+v", r)
		}
		time.Sleep(span)
		w.ask(t, 1, user(mostClients))
		w.one(t, Query{Attributes: user(mostClients)})
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
				w.Note(t.Context(), denial(strconv.Itoa(n)))
				n++
			}
		}
		deny(700)
		check := func(q Query, records int, unrecorded int64) {
			t.Helper()
			q.Most = largestAnswer
			if a := w.Answer(q); len(a.Records) != records || a.Unrecorded != unrecorded {
				t.Errorf("%d records and %d unrecorded, not %d and %d", len(a.Records), a.Unrecorded, records, unrecorded)
			}
		}
		check(Query{}, 500, 200)
		w.Note(t.Context(), denial("0")) // which has a record
		check(Query{}, 500, 200)
		time.Sleep(2 * time.Second)
		deny(130)
		check(Query{}, 600, 230)
		time.Sleep(10 * time.Second)
		deny(500)
		if n := len(w.Answer(Query{Most: 2_000}).Records); n != largestAnswer {
			t.Error(n, "records in an answer")
		}
		time.Sleep(10 * time.Second)
		deny(501)
		check(Query{Since: began.Add(15 * time.Second)}, 500, 1)
		check(Query{Since: began.Add(5 * time.Second)}, 1_000, 231) // as the span is not over
		if w.Unrecorded() != 231 {
			t.Error(w.Unrecorded(), "unrecorded")
		}
		if text := w.lines.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "unrecorded=230") {
			t.Error("the log has not one warning:", text)
		}
		time.Sleep(time.Minute)
		deny(501)
		time.Sleep(time.Minute)
		if text := w.lines.String(); strings.Count(text, "level=WARN") != 2 || !strings.Contains(text, "unrecorded=2\n") {
			t.Error("the log does not tell of the rest")
		}
	})
}

func TestOldestGo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value string
		times int
	}{
		"many": {"", mostRecords + 1_000},
		"long": {strings.Repeat("x", 1_000), 12_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Rules: newWorld(t, false).options.Rules})
				start := time.Now()
				seen := denial("")
				if c.value != "" {
					for _, name := range kept {
						seen.Attributes[name] = c.value
					}
				}
				from := func() time.Duration { return l.Answer(Query{Most: 1}).From.Sub(start) }
				for i := range c.times {
					if i == 1_000 && from() != 0 {
						t.Error("forgets too early")
					}
					time.Sleep(20 * time.Millisecond)
					seen.Decision.Limits[0].Subject = headgate.SubjectOf(strconv.Itoa(i))
					l.Note(t.Context(), &headgate.Observation{Call: seen.Call, Attributes: seen.Attributes, Decision: seen.Decision})
				}
				got, n, bytes, open := from(), 0, 0, 0
				look := func() {
					l.mu.Lock()
					defer l.mu.Unlock()
					n, bytes, open = len(l.records), l.bytes, len(l.open)
				}
				look()
				if n > mostRecords || bytes > mostBytes || n < mostRecords && bytes < mostBytes-5_000 {
					t.Errorf("%d records, %d bytes", n, bytes)
				}
				if want := time.Duration(c.times-n+1) * 20 * time.Millisecond; got != want {
					t.Errorf("has all from %v on, not %v", got, want)
				}
				// Two for each that can be added to: those of eleven seconds.
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
		w.ask(t, 4, headgate.Attributes{"user": "ann", "method": "POST"})
		time.Sleep(span - 1)
		synctest.Wait()
		if text := w.lines.String(); text != "" {
			t.Fatal("too early:", text)
		}
		w.ask(t, 2, headgate.Attributes{"user": "bob"})
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
			t.Error("the second is not told:", text)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 2_000 {
				w.Note(t.Context(), denial(strconv.Itoa(i%600)))
				if i%100 == 0 {
					w.Answer(Query{Attributes: headgate.Attributes{"user": "1"}})
				}
			}
		})
	}
	group.Wait()
	sum := w.Unrecorded()
	for _, r := range w.Answer(Query{Most: largestAnswer}).Records {
		sum += r.Count
	}
	if sum != 8_000 {
		t.Error(sum, "of 8,000 are counted")
	}
}
