// Command store measures the stores: redisstore, compared with the smallest limiting script, and memstore. It ends with a
// verdict for each target of docs/performance.md and fails if one is missed.
package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

const (
	callers  = 64
	subjects = 100_000
)

func main() {
	paired.Main(15, 300*time.Millisecond, func(s *paired.Suite) {
		memory(s)
		redis(s)
		reservations(s)
		footprint(s)
	})
}

// redis compares calls on one server and in a Cluster.
func redis(s *paired.Suite) {
	server := testenv.Start(s, testenv.Redis)
	cluster := testenv.StartCluster(s, testenv.Redis)
	one, many := fleet.Open(s, "redis://"+server.Addr()), fleet.Open(s, "cluster://"+strings.Join(cluster.Addrs(), ","))
	cpu := func() time.Duration { return server.CPU(s) }
	cpus := func() (sum time.Duration) {
		for _, server := range cluster.Servers() {
			sum += server.CPU(s)
		}
		return sum
	}
	variants := []paired.Variant{
		{Name: "a   bare client, smallest GCRA script", Do: bareGCRA(s, server.Addr()), ServerCPU: cpu},
		{Name: "b1  redisstore, 1 limit", Do: takes(one, 1, 1), ServerCPU: cpu},
		{Name: "b3  redisstore, 3 limits", Do: takes(one, 1, 3), ServerCPU: cpu},
		{Name: "b5  redisstore, 5 limits", Do: takes(one, 1, 5), ServerCPU: cpu},
		{Name: "c0  3 counters as envoyproxy/ratelimit", Do: fixedCounters(s, server.Addr(), 3), ServerCPU: cpu},
		{Name: "c1  3 subjects, standalone", Do: takes(one, 3, 1), ServerCPU: cpu},
		{Name: "c2  1 subject, Cluster", Do: takes(many, 1, 1), ServerCPU: cpus},
		{Name: "c3  3 subjects, Cluster", Do: takes(many, 3, 1), ServerCPU: cpus},
	}
	for i := range variants {
		variants[i].Callers = callers
	}
	got := s.Measure(fmt.Sprintf("Redis, %d callers, %d subjects", callers, subjects), s.Rounds, s.Slice, variants)
	s.ExpectMin("b1 ÷ a, throughput", got.Ratio("b1", "a", paired.Throughput), 0.85)
	s.ExpectMax("b1 ÷ a, client CPU", got.Ratio("b1", "a", paired.ClientCPU), 1.3)
	s.ExpectMax("b3 ÷ b1, Redis CPU", got.Ratio("b3", "b1", paired.ServerCPU), 1.7)
	s.ExpectMax("b5 ÷ b1, Redis CPU", got.Ratio("b5", "b1", paired.ServerCPU), 2.4)
	s.ExpectMax("c1 ÷ b1, Redis CPU", got.Ratio("c1", "b1", paired.ServerCPU), 3)
	// 26 µs where the smallest script takes 9.4: a ratio, since the speed of a shared machine varies by a factor of two.
	s.ExpectMax("c1 ÷ a, Redis CPU", got.Ratio("c1", "a", paired.ServerCPU), 2.75)
	s.Note("c1, Redis CPU µs per request of 3 subjects", got.Median("c1", paired.ServerCPU))
	s.Note("c1 ÷ c0, Redis CPU", got.Ratio("c1", "c0", paired.ServerCPU))
	s.ExpectMaxValue("c1, script calls per request of 3 subjects", roundTrips(s, server, one), 1)
}

// bareGCRA calls the smallest script.
func bareGCRA(s *paired.Suite, addr string) func(caller, n int) error {
	client := bare.Open(s, addr)
	keys := make([]string, subjects)
	for i := range keys {
		keys[i] = "bare:" + headgate.SubjectOf(strconv.Itoa(i)).String()
	}
	return func(caller, n int) error {
		key := keys[bare.Spread(caller, n)%subjects]
		return bare.Check(context.Background(), client, key).Error()
	}
}

// fixedCounters charges counters as envoyproxy/ratelimit does for as many descriptors: INCRBY and EXPIRE of a key for each, all
// in one round trip. The window is an hour, so that no key expires during the measurement.
func fixedCounters(s *paired.Suite, addr string, perRequest int) func(caller, n int) error {
	client := bare.Open(s, addr)
	keys := make([]string, subjects)
	hour := strconv.FormatInt(time.Now().Truncate(time.Hour).Unix(), 10)
	for i := range keys {
		keys[i] = "api_user_" + strconv.Itoa(i) + "_" + hour
	}
	return func(caller, n int) error {
		commands := make(rueidis.Commands, 0, 2*perRequest)
		for i := range perRequest {
			key := keys[bare.Spread(caller, n*perRequest+i)%subjects]
			commands = append(commands,
				client.B().Incrby().Key(key).Increment(1).Build(),
				client.B().Expire().Key(key).Seconds(3600).Build())
		}
		for _, result := range client.DoMulti(context.Background(), commands...) {
			if err := result.Error(); err != nil {
				return err
			}
		}
		return nil
	}
}

// takes returns requests that charge limits on each of perRequest subjects.
func takes(store headgate.Store, perRequest, limits int) func(caller, n int) error {
	ids := make([]headgate.Subject, subjects)
	for i := range ids {
		ids[i] = headgate.SubjectOf(strconv.Itoa(i))
	}
	counters := make([]headgate.Counter, limits)
	for i := range counters {
		counters[i] = headgate.CounterOf("bench", strconv.Itoa(i), headgate.TokenBucket)
	}
	type scratch struct {
		charges []headgate.Charge
		results []headgate.Result
	}
	mine := make([]scratch, callers)
	for i := range mine {
		mine[i] = scratch{make([]headgate.Charge, perRequest*limits), make([]headgate.Result, perRequest*limits)}
	}
	return func(caller, n int) error {
		m := mine[caller]
		for i := range m.charges {
			m.charges[i] = headgate.Charge{
				Subject: ids[bare.Spread(caller, n*perRequest+i/limits)%subjects],
				Counter: counters[i%limits],
				Limit:   headgate.PerMinute(1000 * int64(1+i%limits)),
				Cost:    1,
			}
		}
		return store.Take(context.Background(), m.charges, m.results)
	}
}

// roundTrips returns the script calls per request over three subjects.
func roundTrips(s *paired.Suite, server *testenv.Server, store *redisstore.Store) float64 {
	calls := func() (n int64) {
		_, _ = fmt.Sscanf(server.Info(s, "commandstats")["cmdstat_evalsha"], "calls=%d", &n)
		return n
	}
	const requests = 1000
	take := takes(store, 3, 1)
	before := calls()
	for n := range requests {
		testenv.NoError(s, take(0, n))
	}
	// Rounded down, since a background call of the store may be counted too.
	return float64((calls()-before)/10*10) / requests
}
