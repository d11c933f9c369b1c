// Package breaker measures the cost of third-party circuit breakers, and how soon they open when a store dies: the reason why
// storewrap has its own.
package breaker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"
)

// breaker makes a call that succeeds or fails, and reports false if the circuit is open.
type breaker func(good bool) bool

var errFailed = errors.New("failed")

// breakers returns circuit breakers that open on five failures in ten seconds that are also the majority of the calls.
func breakers() map[string]func() breaker {
	return map[string]func() breaker{
		"gobreaker": func() breaker {
			b := gobreaker.NewTwoStepCircuitBreaker[int](gobreaker.Settings{
				Interval: 10 * time.Second, BucketPeriod: 100 * time.Millisecond,
				ReadyToTrip: func(c gobreaker.Counts) bool { return c.TotalFailures >= 5 && 2*c.TotalFailures > c.Requests },
			})
			return func(good bool) bool {
				done, err := b.Allow()
				if err != nil {
					return false
				}
				if good {
					done(nil)
				} else {
					done(errFailed)
				}
				return true
			}
		},
		"failsafe": func() breaker {
			b := circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 5, 10*time.Second).Build()
			return func(good bool) bool {
				if !b.TryAcquirePermit() {
					return false
				}
				if good {
					b.RecordSuccess()
				} else {
					b.RecordFailure()
				}
				return true
			}
		},
	}
}

// TestBreakersOpenLate: a store that answered a thousand calls a second for ten seconds dies. Breakers with one period of ten
// seconds open late.
func TestBreakersOpenLate(t *testing.T) {
	for name, make := range breakers() {
		synctest.Test(t, func(t *testing.T) {
			call := make()
			for range 10_000 {
				call(true)
				time.Sleep(time.Millisecond)
			}
			died, failed := time.Now(), 0
			for call(false) {
				failed++
				time.Sleep(time.Millisecond)
			}
			elapsed := time.Since(died)
			t.Logf("%s: open after %v, %d failed calls", name, elapsed, failed)
			if elapsed < time.Second {
				t.Errorf("%s: open after %v: storewrap could use it", name, elapsed)
			}
		})
	}
}

func BenchmarkBreaker(b *testing.B) {
	for name, make := range breakers() {
		b.Run(name, func(b *testing.B) {
			call := make()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call(true)
				}
			})
		})
	}
}
