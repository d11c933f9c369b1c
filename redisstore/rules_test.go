package redisstore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// versions returns versions of one rule set that must all keep the counts: with other numbers, another order, one more limit,
// one more rule.
func versions(t *testing.T) []*headgate.RuleSet {
	t.Helper()
	daily := func(count int64) headgate.Limit {
		return headgate.Limit{Algorithm: headgate.FixedWindow, Count: count, Window: 24 * time.Hour}
	}
	bucket := func(burst int64) headgate.Limit {
		return headgate.Limit{Count: 100, Window: 24 * time.Hour, Burst: burst}
	}
	byUser := headgate.Rule{ID: "by-user", By: []string{"user"}, Limits: map[string]headgate.Limit{"day": daily(1_000_000), "bucket": bucket(100_000)}}
	global := headgate.Rule{ID: "global", By: headgate.Global, Limit: daily(10_000_000)}
	other := byUser
	other.Limits = map[string]headgate.Limit{"day": daily(2_000_000), "bucket": bucket(300_000)}
	more := byUser
	more.Limits = map[string]headgate.Limit{
		"day": daily(1_000_000), "bucket": bucket(200_000),
		"log": {Algorithm: headgate.SlidingWindow, Count: 500_000, Window: time.Hour},
	}
	further := headgate.Rule{ID: "further", By: []string{"ip", "user"}, Limit: headgate.PerSecond(1_000_000)}
	var sets []*headgate.RuleSet
	for _, rules := range [][]headgate.Rule{{byUser, global}, {global, byUser}, {other, global}, {further, more, global}} {
		set, err := headgate.Compile(rules...)
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
	}
	return sets
}

// TestRulesSwappedUnderLoad swaps the rules 1,000 times: no request sees a mixture, and no counter loses a unit.
func TestRulesSwappedUnderLoad(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	store, err := Open("redis://" + testenv.Start(t, testenv.Redis).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	sets := versions(t)
	expected := map[string][]string{}
	for _, set := range sets {
		expected[set.Version()] = limitsOf(t, set)
	}
	limiter := headgate.NewLimiter(store, sets[0], headgate.Options{})

	const callers, swaps = 8, 1000
	var admitted [callers]int64
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			req := requestOf(i)
			for ctx.Err() == nil {
				d, _ := limiter.Check(t.Context(), req)
				if !d.Allowed || d.Path != headgate.PathStore {
					t.Errorf("%+v", d)
					return
				}
				if got := named(d); !slices.Equal(got, expected[d.Version]) {
					t.Errorf("version %s: decided by %v, want %v", d.Version, got, expected[d.Version])
					return
				}
				admitted[i]++
			}
		})
	}
	for i := range swaps {
		limiter.SetRules(sets[(i+1)%len(sets)])
		time.Sleep(time.Millisecond)
	}
	stop()
	group.Wait()

	var all int64
	for i, n := range admitted {
		all += n
		for _, set := range sets {
			limiter.SetRules(set)
			if used := usedBy(t, limiter, requestOf(i)); used["by-user/day"] != n || used["by-user/bucket"] != n {
				t.Errorf("user %d was admitted %d times, counted %v", i, n, used)
			}
		}
	}
	if used := usedBy(t, limiter, requestOf(0)); used["global/"] != all {
		t.Errorf("%d were admitted in all, counted %v", all, used)
	}
	t.Logf("%d swaps, %d requests", swaps, all)
	if all < swaps {
		t.Errorf("only %d requests between %d swaps", all, swaps)
	}
}

func requestOf(user int) headgate.Request {
	return headgate.Request{Attributes: headgate.Attributes{"user": strconv.Itoa(user), "ip": "192.0.2.1"}}
}

// named returns the limits of a decision with their numbers.
func named(d headgate.Decision) []string {
	var list []string
	for _, l := range d.Limits {
		list = append(list, l.Rule+"/"+l.Name+" "+strconv.FormatInt(l.Limit.Count, 10)+" "+strconv.FormatInt(l.Limit.Burst, 10))
	}
	return list
}

func limitsOf(t *testing.T, set *headgate.RuleSet) []string {
	t.Helper()
	limiter := headgate.NewLimiter(nowhere{}, set, headgate.Options{})
	d, err := limiter.Check(t.Context(), requestOf(0))
	if err != nil {
		t.Fatal(err)
	}
	return named(d)
}

// nowhere is a store that records nothing.
type nowhere struct{}

func (nowhere) Take(context.Context, []headgate.Charge, []headgate.Result) error { return nil }
func (nowhere) Shard(headgate.Subject) int                                       { return 0 }

func usedBy(t *testing.T, limiter *headgate.Limiter, req headgate.Request) map[string]int64 {
	t.Helper()
	e, err := limiter.Explain(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int64{}
	for _, l := range e.Decision.Limits {
		used[l.Rule+"/"+l.Name] = max(l.Limit.Burst, l.Limit.Count) - l.Remaining
	}
	return used
}

// TestExplainWritesNothing explains requests on one server and in a Cluster, where each group of charges must be kept from
// recording.
func TestExplainWritesNothing(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	server := testenv.Start(t, testenv.Redis)
	cluster := testenv.StartCluster(t, testenv.Redis)
	addresses := cluster.Addrs()
	for name, address := range map[string]string{
		"standalone": "redis://" + server.Addr(),
		"cluster":    "cluster://" + addresses[0],
	} {
		store, err := Open(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		var rules []headgate.Rule
		for _, by := range []string{"ip", "user", "tenant", "api_key", "host"} {
			rules = append(rules, headgate.Rule{ID: by, By: []string{by}, Limit: headgate.PerDay(5)})
		}
		limiter, err := headgate.New(store, rules...)
		if err != nil {
			t.Fatal(err)
		}
		req := headgate.Request{Attributes: headgate.Attributes{"ip": "1", "user": "2", "tenant": "3", "api_key": "4", "host": "5"}}
		for round := range 6 {
			for range 3 {
				e, err := limiter.Explain(t.Context(), req)
				if err != nil || e.Decision.Allowed != (round < 5) {
					t.Fatalf("%s: %v, %+v", name, err, e.Decision)
				}
				for _, l := range e.Decision.Limits {
					if l.Remaining != int64(5-round) {
						t.Fatalf("%s: round %d: %+v", name, round, l)
					}
				}
			}
			if d, _ := limiter.Check(t.Context(), req); d.Allowed != (round < 5) {
				t.Fatalf("%s: round %d: %+v", name, round, d)
			}
		}
	}
}
