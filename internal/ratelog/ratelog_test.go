package ratelog

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllow(t *testing.T) {
	t.Parallel()
	for every, interval := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			l := &Limiter{Every: every}
			for round := range 3 {
				var allowed, suppressed atomic.Int64
				var events sync.WaitGroup
				for range 30 {
					events.Go(func() {
						if n, ok := l.Allow("a"); ok {
							allowed.Add(1)
							suppressed.Store(n)
						}
					})
				}
				events.Wait()
				if want := int64(min(round, 1) * 30); allowed.Load() != 1 || suppressed.Load() != want {
					t.Errorf("%d of 30 allowed, %d suppressed before, want %d", allowed.Load(), suppressed.Load(), want)
				}
				time.Sleep(interval - time.Nanosecond)
				if _, ok := l.Allow("a"); ok {
					t.Error("allowed before the interval is over")
				}
				time.Sleep(time.Nanosecond)
			}
		})
	}
}

// TestManyKeys checks that memory and lines are limited, and that expired keys are replaced by new ones.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &Limiter{}
		for round := range 3 {
			lines := 0
			for i := range 3 * maxKeys {
				if _, ok := l.Allow(strconv.Itoa(round*maxKeys + i)); ok {
					lines++
				}
			}
			if lines != maxKeys+1 || len(l.keys) != maxKeys {
				t.Errorf("%d lines and %d keys of at most %d", lines, len(l.keys), maxKeys)
			}
			if n := l.others.suppressed; n != 2*maxKeys-1 {
				t.Errorf("%d events of other keys suppressed", n)
			}
			time.Sleep(defaultEvery)
		}
	})
}
