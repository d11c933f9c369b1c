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

// Library checks a key. A denial is an error: limits are so high that none should occur.
type Library func(key string) error

var errDenied = errors.New("denied")

// perMinute is the limit of every key in Redis.
const perMinute = 1_000_000

// memoryLimit is the limit of every key in memory, where checks are more frequent.
const memoryLimit = 1_000_000_000

// ErrorUnlessAllowed returns err, or an error if a key was denied.
func ErrorUnlessAllowed(allowed bool, err error) error {
	if err == nil && !allowed {
		return errDenied
	}
	return err
}

// client returns a client with default options: with a connection for each caller it was not faster.
func client(t testing.TB, address string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// RedisRate returns go-redis/redis_rate.
func RedisRate(t testing.TB, address string) Library {
	l := redisrate.NewLimiter(client(t, address))
	return func(key string) error {
		r, err := l.Allow(context.Background(), key, redisrate.PerMinute(perMinute))
		return ErrorUnlessAllowed(err == nil && r.Allowed > 0, err)
	}
}

// UluleRedis returns ulule/limiter with its Redis store.
func UluleRedis(t testing.TB, address string) Library {
	store, err := ululeredis.NewStore(client(t, address))
	testenv.NoError(t, err)
	return ulule(limiter.New(store, limiter.Rate{Period: time.Minute, Limit: perMinute}))
}

// UluleMemory returns ulule/limiter with its memory store.
func UluleMemory() Library {
	return ulule(limiter.New(ululememory.NewStore(), limiter.Rate{Period: time.Minute, Limit: memoryLimit}))
}

func ulule(l *limiter.Limiter) Library {
	return func(key string) error {
		c, err := l.Get(context.Background(), key)
		return ErrorUnlessAllowed(!c.Reached, err)
	}
}

// Rate returns golang.org/x/time/rate, with a limiter for each key in a sync.Map.
func Rate() Library {
	var limiters sync.Map
	return func(key string) error {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(memoryLimit, memoryLimit))
		}
		of, _ := l.(*rate.Limiter)
		return ErrorUnlessAllowed(of.Allow(), nil)
	}
}

// GoLimiter returns sethvargo/go-limiter with its memory store.
func GoLimiter(t testing.TB) Library {
	store, err := memorystore.New(&memorystore.Config{Tokens: memoryLimit, Interval: time.Minute})
	testenv.NoError(t, err)
	t.Cleanup(func() { _ = store.Close(context.Background()) })
	return func(key string) error {
		_, _, _, ok, err := store.Take(context.Background(), key)
		return ErrorUnlessAllowed(ok, err)
	}
}

// Throttled returns throttled with its memory store. Like the others here, it has no bound on keys.
func Throttled(t testing.TB) Library {
	store, err := memstore.NewCtx(0)
	testenv.NoError(t, err)
	// Its shortest interval is a nanosecond.
	quota := throttled.RateQuota{MaxRate: throttled.PerSec(memoryLimit), MaxBurst: memoryLimit}
	l, err := throttled.NewGCRARateLimiterCtx(store, quota)
	testenv.NoError(t, err)
	return func(key string) error {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		return ErrorUnlessAllowed(!limited, err)
	}
}
