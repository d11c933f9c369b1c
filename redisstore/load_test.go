package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// load is many callers that charge one unit at a time on counters too large to deny, and the outcome.
type load struct {
	store    headgate.Store
	subjects []headgate.Subject
	deadline time.Duration

	stop context.CancelFunc
	done sync.WaitGroup

	admitted   []atomic.Int64 // by subject
	unanswered []atomic.Int64
	failed     atomic.Int64
	mu         sync.Mutex
	lastError  error
}

var (
	unlimited        = headgate.Limit{Algorithm: headgate.FixedWindow, Count: headgate.MaxCost, Window: 24 * time.Hour}
	unlimitedCounter = headgate.CounterOf("countless", "", headgate.FixedWindow)
)

func startLoad(t testing.TB, store headgate.Store, subjects []headgate.Subject, callers int, deadline time.Duration) *load {
	l := &load{
		store: store, subjects: subjects, deadline: deadline,
		admitted: make([]atomic.Int64, len(subjects)), unanswered: make([]atomic.Int64, len(subjects)),
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	l.stop = stop
	for i := range callers {
		l.done.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				l.charge(context.WithoutCancel(ctx), n%len(subjects))
			}
		})
	}
	return l
}

func (l *load) charge(ctx context.Context, at int) {
	ctx, cancel := context.WithTimeout(ctx, l.deadline)
	defer cancel()
	r, err := l.one(ctx, at, 1)
	switch {
	case err == nil && r.Allowed:
		l.admitted[at].Add(1)
	case errors.Is(err, headgate.ErrUnanswered):
		l.unanswered[at].Add(1)
		fallthrough
	default:
		l.failed.Add(1)
		l.mu.Lock()
		l.lastError = err
		l.mu.Unlock()
		time.Sleep(time.Millisecond) // do not spin on immediate errors
	}
}

func (l *load) one(ctx context.Context, at int, cost int64) (headgate.Result, error) {
	charges := [1]headgate.Charge{{Subject: l.subjects[at], Counter: unlimitedCounter, Limit: unlimited, Cost: cost}}
	var results [1]headgate.Result
	err := l.store.Take(ctx, charges[:], results[:])
	return results[0], err
}

// end stops the callers and compares the counters with their results: each admitted charge is recorded, except at most lost
// of them in a failover, and none is recorded twice.
func (l *load) end(t testing.TB, lost int64) {
	t.Helper()
	l.stop()
	l.done.Wait()
	for i := range l.subjects {
		r, err := l.one(t.Context(), i, 0)
		if err != nil {
			t.Fatalf("reading the counter afterwards: %v", err)
		}
		used := unlimited.Count - r.Remaining
		admitted, unanswered := l.admitted[i].Load(), l.unanswered[i].Load()
		if used < admitted-lost || used > admitted+unanswered {
			t.Errorf("subject %d: counter at %d, but %d charges were admitted and %d not answered", i, used, admitted, unanswered)
		}
		if admitted == 0 {
			t.Errorf("subject %d was never admitted", i)
		}
	}
}

// recovers waits for the calm time and then counts for the rest: almost all charges must succeed, since a busy machine delays a few.
func (l *load) recovers(t testing.TB, calm, rest time.Duration) {
	t.Helper()
	time.Sleep(calm)
	failed, admitted := l.failed.Load(), l.allAdmitted()
	time.Sleep(rest)
	failed, admitted = l.failed.Load()-failed, l.allAdmitted()-admitted
	if failed*20 > admitted {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.Errorf("%d callers still failed and %d succeeded after %v: %v", failed, admitted, calm, l.lastError)
	}
}

func (l *load) allAdmitted() (sum int64) {
	for i := range l.admitted {
		sum += l.admitted[i].Load()
	}
	return sum
}

func subjects(n int) []headgate.Subject {
	list := make([]headgate.Subject, n)
	for i := range list {
		list[i] = headgate.SubjectOf("load", string(rune('a'+i)))
	}
	return list
}
