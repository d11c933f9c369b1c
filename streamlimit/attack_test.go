package streamlimit_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/streamlimit"
)

// TestManyGoroutines tests that goroutines that share a connection are held to its limits together within 2 %, that each of them gets
// messages through, and that no message waits longer than MaxDelay.
func TestManyGoroutines(t *testing.T) {
	t.Parallel()
	const perSecond, span, goroutines, burst, size = 4, 10 * time.Minute, 20, 20, 100
	chat := headgate.Limit{Count: 60 * perSecond, Window: time.Minute, Burst: burst}
	bytes := ofMessages(headgate.Limit{Count: 60 * perSecond * size, Window: time.Minute, Burst: burst * size})
	bytes.Cost = headgate.Cost{From: "descriptor.bytes"}
	for name, test := range map[string]struct {
		connection headgate.Limit
		rules      []headgate.Rule
	}{
		"connection": {connection: chat},
		"rule":       {rules: []headgate.Rule{ofMessages(chat)}},
		"bytes":      {rules: []headgate.Rule{bytes}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const maxDelay = 2 * goroutines / perSecond * time.Second
				gate := newLimits(t, newLimiter(t, inMemory(), test.rules...), streamlimit.Options{
					Connection: test.connection, MaxDelay: maxDelay,
				}).Open(ada)
				ctx, cancel := context.WithTimeout(t.Context(), span)
				defer cancel()
				var all sync.WaitGroup
				var counts [goroutines]int
				for i := range counts {
					all.Go(func() {
						for {
							// The sizes of two goroutines are twice the size together.
							start, bytes := time.Now(), size/2+i%2*size
							switch v := gate.Message(ctx, bytes); {
							case ctx.Err() != nil:
								return
							case v.Action != streamlimit.Pass || time.Since(start) > maxDelay:
								t.Errorf("%+v after %d messages and %s", v, counts[i], time.Since(start))
								return
							}
							counts[i]++
						}
					})
				}
				all.Wait()
				sum := 0.0
				for i, n := range counts {
					if name == "bytes" {
						sum += float64(n) * (0.5 + float64(i%2))
					} else {
						sum += float64(n)
					}
					if n == 0 {
						t.Errorf("goroutine %d starved: %v", i, counts)
					}
				}
				if want := perSecond*span.Seconds() + burst; math.Abs(sum-want) > 0.02*want {
					t.Errorf("%.1f messages passed, want %.0f: %v", sum, want, counts)
				}
			})
		})
	}
}

// TestMaxDelayOfMany tests that MaxDelay includes the wait for earlier messages of the connection.
func TestMaxDelayOfMany(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]headgate.Rule{"connection": nil, "rule": {ofMessages(headgate.PerSecond(1))}} {
		synctest.Test(t, func(t *testing.T) {
			o := streamlimit.Options{MaxDelay: 4500 * time.Millisecond}
			if rules == nil {
				o.Connection = headgate.PerSecond(1)
			}
			gate := newLimits(t, newLimiter(t, inMemory(), rules...), o).Open(ada)
			start := time.Now()
			var all sync.WaitGroup
			var passed, closed atomic.Int32
			for range 20 {
				all.Go(func() {
					switch v := gate.Message(t.Context(), 1); {
					case time.Since(start) > o.MaxDelay:
						t.Errorf("%s: waited %s: %+v", name, time.Since(start), v)
					case v.Action == streamlimit.Pass:
						passed.Add(1)
					case v.Action == streamlimit.Close && v.Code == 1008:
						closed.Add(1)
					}
				})
			}
			all.Wait()
			if passed.Load() != 5 || closed.Load() != 15 { // at 0 to 4 seconds
				t.Errorf("%s: %d messages passed and %d were closed, want 5 and 15", name, passed.Load(), closed.Load())
			}
		})
	}
}

// TestLargerThanBurst tests that a message with more bytes than the burst has a clear result at once, whatever happens to others in
// excess, and is not charged.
func TestLargerThanBurst(t *testing.T) {
	t.Parallel()
	bytes := ofMessages(headgate.Limit{Count: 1000, Window: time.Second, Burst: 100})
	bytes.Cost = headgate.Cost{From: "descriptor.bytes"}
	queue := bytes
	queue.Limit, queue.MaxDelay = headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 100, Window: time.Second}, time.Hour
	for name, rule := range map[string]headgate.Rule{"bucket": bytes, "queue": queue} {
		for on, want := range map[streamlimit.Action]streamlimit.Action{
			streamlimit.Delay: streamlimit.Close, streamlimit.Drop: streamlimit.Drop, streamlimit.Close: streamlimit.Close,
		} {
			synctest.Test(t, func(t *testing.T) {
				gate := newLimits(t, newLimiter(t, inMemory(), rule), streamlimit.Options{OnExcess: on, MaxDelay: 24 * time.Hour}).Open(ada)
				start := time.Now()
				for _, size := range []int{101, 1000, math.MaxInt} {
					v := gate.Message(t.Context(), size)
					if v.Action != want || v.RetryAfter != headgate.Never || v.Decision == nil {
						t.Errorf("%s, %d bytes: %+v", name, size, v)
					}
					if want == streamlimit.Close && (v.Code != 1008 || !strings.Contains(v.Reason, "never allow a message of cost ")) {
						t.Errorf("%s, %d bytes: %d, %q", name, size, v.Code, v.Reason)
					}
				}
				if v := gate.Message(t.Context(), 100); v.Action != streamlimit.Pass || time.Since(start) != 0 {
					t.Errorf("%s: 100 bytes after %s: %+v", name, time.Since(start), v)
				}
			})
		}
	}
}

// TestFreeMessages tests that messages that cost nothing pass while others are denied, and that a negative cost gives nothing back.
func TestFreeMessages(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]streamlimit.Options{"rule": {}, "connection": {Connection: headgate.PerHour(2)}} {
		var rules []headgate.Rule
		if name == "rule" {
			rules = append(rules, ofMessages(headgate.PerHour(2)))
		}
		o.OnExcess = streamlimit.Close
		gate := newLimits(t, newLimiter(t, inMemory(), rules...), o).Open(ada)
		passed(t, gate, 2)
		for _, cost := range []int64{0, -1, -headgate.MaxCost, math.MinInt64} {
			if v := gate.MessageWithCost(t.Context(), 100, cost); v.Action != streamlimit.Pass {
				t.Errorf("%s: cost %d: %+v", name, cost, v)
			}
			if v := gate.Message(t.Context(), 100); v.Action != streamlimit.Close {
				t.Errorf("%s: after cost %d: %+v", name, cost, v)
			}
		}
	}
}

// TestContextOfSecond tests that a message that waits for an earlier one of its connection returns when its own context ends.
func TestContextOfSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := newLimits(t, nil, streamlimit.Options{Connection: headgate.PerSecond(1)}).Open(ada)
		passed(t, gate, 1)
		start, first := time.Now(), make(chan streamlimit.Verdict)
		go func() { first <- gate.Message(t.Context(), 1) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		expect(t, "second", gate.Message(ctx, 1), streamlimit.Close, 1001, "connection is closing")
		if waited := time.Since(start); waited != 400*time.Millisecond {
			t.Errorf("waited %s", waited)
		}
		if v := <-first; v.Action != streamlimit.Pass || time.Since(start) != time.Second {
			t.Errorf("first: %+v after %s", v, time.Since(start))
		}
	})
}

// TestClosedWhileDelayed closes many connections while their messages are delayed. The bubble fails if a goroutine remains.
func TestClosedWhileDelayed(t *testing.T) {
	t.Parallel()
	queue := ofMessages(headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second})
	queue.MaxDelay = time.Hour
	for name, test := range map[string]struct {
		connection headgate.Limit
		rules      []headgate.Rule
	}{
		"connection": {connection: headgate.PerMinute(1)},
		"rule":       {rules: []headgate.Rule{ofMessages(headgate.PerMinute(1))}},
		"queue":      {rules: []headgate.Rule{queue}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limits := newLimits(t, newLimiter(t, inMemory(), test.rules...), streamlimit.Options{
					Connection: test.connection, MaxDelay: time.Hour,
				})
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				var connections sync.WaitGroup
				for range 100 {
					connections.Go(func() {
						gate := limits.Open(ada)
						for {
							v := gate.Message(ctx, 1)
							if v.Action == streamlimit.Pass {
								continue
							}
							expect(t, "closed", v, streamlimit.Close, 1001, "connection is closing")
							if gate.StopTimer() {
								t.Error("a timer is left")
							}
							return
						}
					})
				}
				synctest.Wait()
				cancel()
				connections.Wait()
				if waited := time.Since(start); waited != 0 {
					t.Errorf("the connections ended after %s", waited)
				}
			})
		})
	}
}
