package meter

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// fakeWriter records the usage that is written to it.
type fakeWriter struct {
	mu   sync.Mutex
	fail error
	used map[string]int64 // by day, rule and user
}

func (b *fakeWriter) write(_ context.Context, rows []Row) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	for i := range rows {
		b.used[rows[i].Day+" "+rows[i].Rule+" "+rows[i].Attributes["user"]] += rows[i].Units
		b.used["denied"] += rows[i].Denied
	}
	return nil
}

func newTestMeter(t *testing.T) (*Meter, *fakeWriter, *headgate.Limiter) {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{
			ID: "metered", By: []string{"client"}, Meter: true, Cost: headgate.Cost{From: "header.x-cost"},
			Limits: map[string]headgate.Limit{"a": headgate.PerHour(100), "b": headgate.PerDay(1000)},
		},
		headgate.Rule{ID: "log", Match: headgate.Match{Path: "/log"}, By: []string{"user"}, Meter: true, Limit: headgate.Limit{
			Algorithm: headgate.SlidingLog, Count: 100, Window: time.Hour,
		}},
		headgate.Rule{ID: "other", By: []string{"user"}, Limit: headgate.PerHour(100)})
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeWriter{used: map[string]int64{}}
	return New(limiter, b.write, slog.New(slog.DiscardHandler)), b, limiter
}

func (m *Meter) check(l *headgate.Limiter, user, cost string) {
	a := headgate.Attributes{"user": user, "header.x-cost": cost}
	d, _ := l.Check(context.Background(), headgate.Request{Attributes: a})
	m.Note(&headgate.Observation{Call: "check", Attributes: a, Decision: d})
}

// Allowed cost is counted once per rule, however many limits the rule has.
func TestUsageCountsAllowedCostOncePerRule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b, l := newTestMeter(t)
		m.check(l, "ann", "3")
		m.check(l, "bob", "98")
		m.check(l, "bob", "5") // denied
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { m.Run(ctx); close(ended) }()
		time.Sleep(flushInterval + time.Second)
		synctest.Wait()
		day := "2000-01-01 metered "
		want := map[string]int64{day + "ann": 3, day + "bob": 98, "denied": 5}
		if !maps.Equal(b.used, want) {
			t.Errorf("%v, want %v", b.used, want)
		}
		// A reservation is counted when it is committed, with the committed cost.
		for _, path := range []string{"/", "/log"} {
			a := headgate.Attributes{"user": "eve", "path": path}
			r, _ := l.Reserve(ctx, headgate.Request{Attributes: a, Cost: 10}, 0)
			m.Note(&headgate.Observation{Call: "reserve", Attributes: a, Decision: r.Decision})
			d, err := l.Commit(ctx, r.Token, headgate.Request{Cost: 4})
			if err != nil {
				t.Fatal(err)
			}
			m.Note(&headgate.Observation{Call: "commit", Decision: d})
		}
		a := headgate.Attributes{"user": "ann"}
		d, _ := l.Refund(ctx, headgate.Request{Attributes: a, Cost: 2})
		m.Note(&headgate.Observation{Call: "refund", Attributes: a, Decision: d})
		d, _ = l.Peek(ctx, headgate.Request{Attributes: a, Cost: 2})
		m.Note(&headgate.Observation{Call: "peek", Attributes: a, Decision: d})
		time.Sleep(14 * time.Hour)
		m.check(l, "ann", "1") // this may already be the next day
		time.Sleep(24 * time.Hour)
		m.check(l, "ann", "1")
		stop()
		<-ended // Run writes the rest
		if got := b.used[day+""]; got != 8 || b.used["2000-01-01 log "]+b.used["2000-01-01 log eve"] != 4 {
			t.Errorf("committed: %v", b.used)
		}
		if b.used[day+"ann"]+b.used["2000-01-02 metered ann"] != 3 || b.used["2000-01-02 metered ann"] < 1 || m.Lost() != 0 {
			t.Errorf("%v, lost %d", b.used, m.Lost())
		}
	})
}

// Rows that were certainly not written are written later. Rows that may have been written are not.
func TestUsageIsNotWrittenTwice(t *testing.T) {
	t.Parallel()
	m, b, l := newTestMeter(t)
	m.check(l, "ann", "3")
	b.fail = ErrNotWritten
	m.flush(t.Context())
	m.check(l, "ann", "4")
	b.fail = nil
	m.flush(t.Context())
	if total := sum(b.used); total != 7 {
		t.Errorf("%v", b.used)
	}
	m.check(l, "ann", "5")
	b.fail = errors.New("the connection broke")
	m.flush(t.Context())
	b.fail = nil
	m.flush(t.Context())
	if total := sum(b.used); total != 7 || m.Lost() != 5 {
		t.Errorf("%v, lost %d", b.used, m.Lost())
	}
}

func sum(used map[string]int64) (total int64) {
	for _, n := range used {
		total += n
	}
	return total
}

func BenchmarkNote(b *testing.B) {
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "metered", By: []string{"user"}, Meter: true, Limit: headgate.PerHour(headgate.MaxCost)})
	if err != nil {
		b.Fatal(err)
	}
	m := New(limiter, nil, nil)
	a := headgate.Attributes{"user": "ann"}
	d, _ := limiter.Check(b.Context(), headgate.Request{Attributes: a})
	b.ReportAllocs()
	for b.Loop() {
		m.Note(&headgate.Observation{Call: "check", Attributes: a, Decision: d})
	}
}
