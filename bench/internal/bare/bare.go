// Package bare is a minimal rate limiter, the baseline of the suites: one script on one string per key, called by a plain
// Redis client, and the same behind gRPC. It knows nothing of Headgate.
package bare

import (
	"context"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testenv"
)

// script is a hand-written GCRA script: it makes the decision and nothing else.
var script = rueidis.NewLuaScript(`
local now = redis.call('TIME') now = now[1] * 1000000 + now[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
tat = tat + ARGV[1]
if tat - now > tonumber(ARGV[2]) then return {0, tat - now - ARGV[2]} end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', ARGV[3])
return {1, ARGV[2] - (tat - now)}`)

// Open returns a client of one server, without the features that a limiter does not need.
func Open(t testing.TB, addr string) rueidis.Client {
	t.Helper()
	client, err := open(addr)
	testenv.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func open(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableRetry: true, DisableCache: true,
	})
}

// Check charges a key, whose limit is a million per minute.
func Check(ctx context.Context, client rueidis.Client, key string) rueidis.RedisResult {
	return script.Exec(ctx, client, []string{key}, []string{"60", "60000000", "60000"})
}

// Spread hashes a call to a pseudo-random number, cheaply.
func Spread(caller, n int) int {
	x := uint64(n)*0x9e3779b97f4a7c15 + uint64(caller)*0xbf58476d1ce4e5b9
	x ^= x >> 29
	x *= 0x94d049bb133111eb
	return int(x >> 33)
}
