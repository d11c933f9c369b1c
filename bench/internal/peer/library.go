package peer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/internal/testenv"
)

// Library asks whether a key may pass. Denials are errors: limits are so high that there should be none.
type Library func(key string) error

var errDenied = errors.New("denied")

// perMinute is the limit of every key.
const perMinute = 1_000_000

// most is the limit of those in memory, which are asked more often.
const most = 1_000_000_000

// Passes is an error unless a key was allowed to pass.
func Passes(allowed bool, err error) error {
	if err == nil && !allowed {
		return errDenied
	}
	return err
}

// client is as it comes: with a connection for each caller it was no faster.
func client(t testing.TB, address string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// RedisRate is go-redis/redis_rate.
func RedisRate(t testing.TB, address string) Library {
	l := redisrate.NewLimiter(client(t, address))
	return func(key string) error {
		r, err := l.Allow(context.Background(), key, redisrate.PerMinute(perMinute))
		return Passes(err == nil && r.Allowed > 0, err)
	}
}

// UluleRedis is ulule/limiter with its Redis store.
func UluleRedis(t testing.TB, address string) Library {
	store, err := ululeredis.NewStore(client(t, address))
	testenv.NoError(t, err)
	return ulule(limiter.New(store, limiter.Rate{Period: time.Minute, Limit: perMinute}))
}

// UluleMemory is ulule/limiter with its store in memory.
func UluleMemory() Library {
	return ulule(limiter.New(ululememory.NewStore(), limiter.Rate{Period: time.Minute, Limit: most}))
}

func ulule(l *limiter.Limiter) Library {
	return func(key string) error {
		c, err := l.Get(context.Background(), key)
		return Passes(!c.Reached, err)
	}
}

// Rate is golang.org/x/time/rate, with a limiter for each key in a sync.Map.
func Rate() Library {
	var limiters sync.Map
	return func(key string) error {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(most, most))
		}
		of, _ := l.(*rate.Limiter)
		return Passes(of.Allow(), nil)
	}
}

// GoLimiter is sethvargo/go-limiter with its store in memory.
func GoLimiter(t testing.TB) Library {
	store, err := memorystore.New(&memorystore.Config{Tokens: most, Interval: time.Minute})
	testenv.NoError(t, err)
	t.Cleanup(func() { _ = store.Close(context.Background()) })
	return func(key string) error {
		_, _, _, ok, err := store.Take(context.Background(), key)
		return Passes(ok, err)
	}
}

// Throttled is throttled with its store in memory, without a bound on keys as all others here.
func Throttled(t testing.TB) Library {
	store, err := memstore.NewCtx(0)
	testenv.NoError(t, err)
	// Its shortest interval is a nanosecond.
	quota := throttled.RateQuota{MaxRate: throttled.PerSec(most), MaxBurst: most}
	l, err := throttled.NewGCRARateLimiterCtx(store, quota)
	testenv.NoError(t, err)
	return func(key string) error {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		return Passes(!limited, err)
	}
}
