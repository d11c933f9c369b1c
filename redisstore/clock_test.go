package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// TestNodeClockDoesNotMatter compares two nodes on one Redis, one of them with a wrong clock, over windows whose bounds the
// node computes.
func TestNodeClockDoesNotMatter(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for _, wrong := range []time.Duration{-time.Hour, time.Hour, -1000 * time.Hour} {
		right, skewed := open(t, standalone(server)), open(t, standalone(server))
		skewed.wall = func() time.Time { return time.Now().Add(wrong) }
		for _, unit := range []headgate.Calendar{headgate.Minute, headgate.Hour, headgate.Day, headgate.Month} {
			limit := headgate.Quota(10, unit, nil)
			for used := int64(1); used <= 10; used++ {
				store := right
				if used%2 == 0 {
					store = skewed
					store.clockOffset.Store(0) // as if it had not learned the store's time
				}
				r, err := headgate.Take(t.Context(), store, limit, wrong.String()+unit.String(), "me")
				if err != nil {
					t.Fatal(err)
				}
				terms, _ := (&headgate.Charge{Limit: limit}).Terms(r.Time)
				end := time.UnixMicro(terms.End)
				if !r.Allowed || r.Remaining != 10-used || r.ResetAfter != end.Sub(r.Time) {
					t.Errorf("%s, node wrong by %s: charge %d got %+v", unit, wrong, used, r)
				}
				if off := time.Since(r.Time); off > time.Second || off < -time.Second {
					t.Errorf("decided at %s: not the store's time", r.Time)
				}
			}
		}
	}
}

// TestRedisClockStep steps the clock of the server itself.
func TestRedisClockStep(t *testing.T) {
	t.Parallel()
	server := testenv.StartFaked(t, testenv.Redis)
	store := open(t, standalone(server))
	const step = 30 * time.Second
	limits := []headgate.Limit{
		headgate.PerMinute(600),
		{Algorithm: headgate.FixedWindow, Count: 600, Window: time.Minute},
		{Algorithm: headgate.FixedWindow, Count: 600, Window: time.Minute, Align: headgate.OnClock},
		{Algorithm: headgate.SlidingWindow, Count: 600, Window: time.Minute},
		{Algorithm: headgate.SlidingLog, Count: 600, Window: time.Minute},
	}
	take := func(limit headgate.Limit, name string, cost, least int64) headgate.Result {
		t.Helper()
		var results [1]headgate.Result
		charges := []headgate.Charge{{
			Subject: headgate.SubjectOf(name), Limit: limit, Cost: cost, AtLeast: least,
			Counter: headgate.CounterOf(name, limit.Algorithm.String(), limit.Algorithm) + headgate.Counter(limit.Align),
		}}
		if err := store.Take(t.Context(), charges, results[:]); err != nil {
			t.Fatal(err)
		}
		return results[0]
	}

	for _, limit := range limits {
		take(limit, "back", 600, 0)
		take(limit, "forward", 600, 0)
	}
	retry := map[headgate.Limit]time.Time{}
	for _, limit := range limits {
		r := take(limit, "back", 1, 0)
		retry[limit] = r.Time.Add(r.RetryAfter)
	}
	server.StepClock(t, step)
	if r := take(limits[0], "forward", 600, 1); r.Granted < 295 || r.Granted > 330 {
		t.Errorf("30 s forward refilled %d units of 10 per second", r.Granted)
	}
	server.StepClock(t, -step)
	if r := take(limits[0], "forward", 600, 1); r.Granted > 15 {
		t.Errorf("the refill of the same 30 s was given twice: %d units", r.Granted)
	}
	server.StepClock(t, -step)
	for _, limit := range limits {
		r := take(limit, "back", 1, 0)
		if r.Allowed {
			t.Errorf("%s: admitted after the clock was set back", limit.Algorithm)
			continue
		}
		// On the new clock, the wait must end no later than 30 s after it would have.
		if late := r.Time.Add(r.RetryAfter).Sub(retry[limit]); late > 0 {
			t.Errorf("%s: waits until %s later than before, by a clock set back by %s", limit.Algorithm, late, step)
		}
		if r.RetryAfter > time.Minute+step+time.Second {
			t.Errorf("%s: has to wait %s", limit.Algorithm, r.RetryAfter)
		}
	}
}

// TestLifetimes charges 1/second and 1000/month on one subject. No write shortens the TTL, and later writes delete expired
// fields.
func TestLifetimes(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	target := openWithClock(t, standalone(server), "ttl", nil)
	store, ok := target.Store.(*Store)
	if !ok {
		t.Fatal("not a redisstore")
	}
	subject := headgate.SubjectOf("me")
	month := headgate.Charge{
		Subject: subject, Counter: headgate.CounterOf("month", "", headgate.FixedWindow),
		Limit: headgate.Quota(1000, headgate.Month, nil), Cost: 1,
	}
	second := func(name string) headgate.Charge {
		return headgate.Charge{
			Subject: subject, Counter: headgate.CounterOf(name, "", headgate.TokenBucket),
			Limit: headgate.PerSecond(1), Cost: 1,
		}
	}
	now := time.Date(2034, 3, 3, 0, 0, 0, 777, time.UTC)
	take := func(charges ...headgate.Charge) {
		t.Helper()
		now = now.Add(1500 * time.Millisecond)
		target.SetTime(now)
		results := make([]headgate.Result, len(charges))
		if err := store.Take(t.Context(), charges, results); err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if !r.Allowed {
				t.Fatalf("denied: %+v", r)
			}
		}
	}
	ttl := func() int64 {
		at, _ := server.Must(t, "PEXPIRETIME", store.Key(subject)).(int64)
		return at
	}
	take(second("a"))
	if got, want := ttl(), now.Unix()+1; got < want*1000 || got > (want+8)*1000 {
		t.Errorf("a field with a lifetime of a second expires at %d, now %d", got, now.UnixMilli())
	}
	take(month)
	end := time.Date(2034, 4, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	for i := range 100 {
		take(second(string(rune('b' + i))))
		take(second("a"), month)
		if got := ttl(); got != end {
			t.Fatalf("the key expires at %d, the month ends at %d", got, end)
		}
	}
	for range 100 {
		take(month)
	}
	if n, _ := server.Must(t, "HLEN", store.Key(subject)).(int64); n > 2 {
		t.Errorf("%d fields left, want at most 2", n)
	}
}
