package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storetest"
)

// clockLine is the only line in which the script reads the time. Tests replace it with testClock; production scripts do not accept a
// time.
const (
	clockLine = "local now = redis.call('TIME'); now = now[1] * 1000000 + now[2]"
	testClock = "local now = tonumber(table.remove(ARGV))"
)

// clockClient adds the test's time to each call of the script under test.
type clockClient struct {
	rueidis.Client
	sha, text string
	now       atomic.Int64
}

func (c *clockClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	parts := cmd.Commands()
	if len(parts) < 3 || parts[1] != c.sha && parts[1] != c.text {
		return c.Client.Do(ctx, cmd)
	}
	n, _ := strconv.Atoi(parts[2])
	args := append(append([]string{}, parts[3+n:]...), strconv.FormatInt(c.now.Load(), 10))
	return c.Client.Do(ctx, c.B().Arbitrary(parts[:3]...).Keys(parts[3:3+n]...).Args(args...).Build())
}

// openWithClock opens a store whose script takes the time from the test. edit may change the script further.
func openWithClock(t testing.TB, address, namespace string, edit func(string) string) storetest.Target {
	t.Helper()
	text := strings.Replace(takeText, clockLine, testClock, 1)
	if text == takeText {
		t.Fatal("lua/take.lua has no clock line to substitute")
	}
	if edit != nil {
		text = edit(text)
	}
	sc := newScript(text)
	co, err := clientOption(Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	client := &clockClient{sha: sc.sha, text: sc.text}
	s := newStore(Options{Namespace: namespace}, redisclient.IsCluster(&co))
	s.take = sc
	s.dial = func() (rueidis.Client, error) {
		var err error
		client.Client, err = rueidis.NewClient(co)
		return client, err
	}
	s.start()
	t.Cleanup(s.Close)
	awaitReady(t, s)
	target := storetest.Target{Store: s, SetTime: func(now time.Time) { client.now.Store(now.UnixMicro()) }}
	if s.cluster {
		target.Group = func(subject headgate.Subject) int { return int(s.slot(subject)) }
	}
	return target
}

// open opens a store as users do, and waits until it is connected.
func open(t testing.TB, address string) *Store {
	t.Helper()
	s, err := Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	awaitReady(t, s)
	return s
}

// awaitReady waits until a store is connected. On a machine that stalls, an attempt to connect may time out.
func awaitReady(t testing.TB, s *Store) {
	t.Helper()
	err := s.Ready(t.Context())
	for tries := 0; err != nil && strings.Contains(err.Error(), "timeout") && tries < 20; tries++ {
		err = s.Ready(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startServer, startSentinels and startCluster start servers, and check at the end of the test that every counter has a TTL.
func startServer(t testing.TB) *testenv.Server {
	s := testenv.Start(t, testenv.Redis)
	t.Cleanup(func() { checkTTLs(t, s) })
	return s
}

func startSentinels(t testing.TB) *testenv.Sentinels {
	s := testenv.StartSentinels(t, testenv.Redis)
	t.Cleanup(func() { checkTTLs(t, s.Primary(t)) })
	return s
}

func startCluster(t testing.TB, extra ...string) *testenv.Cluster {
	c := testenv.StartCluster(t, testenv.Redis, extra...)
	t.Cleanup(func() { checkTTLs(t, c.Primaries(t)...) })
	return c
}

func standalone(s *testenv.Server) string { return "redis://" + s.Addr() }

func sentinels(s *testenv.Sentinels) string {
	return "sentinel://" + strings.Join(s.Addrs(), ",") + "/" + s.Master()
}

func cluster(c *testenv.Cluster) string { return "cluster://" + strings.Join(c.Addrs(), ",") }

// checkTTLs fails the test if a counter on the servers has no TTL, and returns the number of counters.
func checkTTLs(t testing.TB, servers ...*testenv.Server) (counters int) {
	t.Helper()
	for _, s := range servers {
		keys, _ := s.Must(t, "KEYS", format+":*").([]any)
		for _, k := range keys {
			key, _ := k.(string)
			if ttl, _ := s.Must(t, "PTTL", key).(int64); ttl == -1 {
				t.Errorf("%s has no TTL", key)
			}
			counters++
		}
	}
	return counters
}
