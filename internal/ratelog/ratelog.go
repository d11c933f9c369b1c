// Package ratelog keeps repeated events from flooding a log. It knows when an event may be logged again, but not what the
// event is.
package ratelog

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

const (
	defaultEvery = 10 * time.Second
	// maxKeys limits the memory, and the number of lines that an attacker with many addresses can cause.
	maxKeys = 1000
)

// Limiter allows the first event of each key to be logged, then one per interval. Keys after the first 1,000 of an interval
// share one line. Use Log to log an event, or Allow to include the number of suppressed events. The zero value is ready to
// use, and safe for concurrent use.
type Limiter struct {
	// Every is the interval; 0 means 10 seconds.
	Every time.Duration

	mu     sync.Mutex
	keys   map[string]*event
	others event     // shared by the keys that are not in the map
	swept  time.Time // when expired keys were last removed
}

// event is the state of one key.
type event struct {
	next       time.Time // not logged before
	suppressed int64
}

// Allow reports whether an event may be logged now, and if so how many events of the same key were suppressed since the last
// one.
func (l *Limiter) Allow(key string) (suppressed int64, ok bool) {
	now, every := time.Now(), l.Every
	if every == 0 {
		every = defaultEvery
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(key, now, every)
	if now.Before(e.next) {
		e.suppressed++
		return 0, false
	}
	suppressed = e.suppressed
	*e = event{next: now.Add(every)}
	return suppressed, true
}

// Log logs an event if it may be logged now.
func (l *Limiter) Log(ctx context.Context, log *slog.Logger, level slog.Level, key, message string, args ...any) {
	if _, ok := l.Allow(key); ok {
		log.Log(ctx, level, message, args...) //nolint:sloglint // callers pass a constant
	}
}

// find returns the event of a key, or others if there are too many keys.
func (l *Limiter) find(key string, now time.Time, every time.Duration) *event {
	if e := l.keys[key]; e != nil {
		return e
	}
	if len(l.keys) >= maxKeys && now.Sub(l.swept) >= every {
		maps.DeleteFunc(l.keys, func(_ string, e *event) bool { return !now.Before(e.next) })
		l.swept = now
	}
	if len(l.keys) >= maxKeys {
		return &l.others
	}
	if l.keys == nil {
		l.keys = map[string]*event{}
	}
	e := &event{}
	l.keys[key] = e
	return e
}
