package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/peer"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storewrap"
)

// open returns our store as users have it, but with a deadline that a busy machine does not miss.
func (b *bench) open() *storewrap.Store {
	return fleet.Wrap(b, "redis://"+b.redis.Addr(), storewrap.Options{Deadline: time.Second})
}

// do makes one call.
type do = func(caller, n int) error

// takes returns calls that charge one counter of a drawn subject and count the decisions made by path.
func (b *bench) takes(store headgate.Store, from []int32, c headgate.Charge, path headgate.Path, t *tally) do {
	type scratch struct {
		charges [1]headgate.Charge
		results [1]headgate.Result
		_       [64]byte
	}
	scratches := make([]scratch, callers)
	for i := range scratches {
		scratches[i].charges[0] = c
	}
	return func(caller, n int) error {
		r := &scratches[caller]
		r.charges[0].Subject = b.draws.ids[next(from, caller, n)]
		err := store.Take(context.Background(), r.charges[:], r.results[:])
		t.note(caller, n, r.results[0].Path == path)
		return err
	}
}

// charge returns a charge of one unit.
func charge(name string, limit headgate.Limit) headgate.Charge {
	return headgate.Charge{Counter: headgate.CounterOf(name, "", limit.Algorithm), Limit: limit, Cost: 1}
}

// plenty is a limit that no subject reaches, none a limit that all subjects exceed.
var plenty, none = headgate.PerHour(headgate.MaxCost), headgate.PerHour(1)

// local measures decisions without Redis: by lease or by a cached denial.
func (b *bench) local() {
	store := b.open()
	var tallies [5]tally
	take := b.takes(store, b.draws.hot, charge("leased", plenty), headgate.PathLease, &tallies[0])
	both := b.takes(store, b.draws.hot, charge("both", plenty), headgate.PathLease, &tallies[1])
	deny := b.takes(store, b.draws.hot, charge("denied", none), headgate.PathCache, &tallies[2])
	checkOne := b.checks(store, &tallies[3], headgate.Rule{
		ID: "one", By: []string{"user"}, Limits: map[string]headgate.Limit{
			"second": headgate.PerSecond(headgate.MaxCost), "minute": headgate.PerMinute(headgate.MaxCost), "hour": plenty,
		},
	})
	checkThree := b.checks(store, &tallies[4],
		headgate.Rule{ID: "user", By: []string{"user"}, Limit: plenty},
		headgate.Rule{ID: "tenant", By: []string{"tenant"}, Limit: plenty},
		headgate.Rule{ID: "ip", By: []string{"ip"}, Limit: plenty})
	variants := []paired.Variant{
		{Name: "Take, leased", Callers: 1, Do: take},
		{Name: "Take, leased, 2 callers", Callers: 2, Do: both},
		{Name: "Take, denied", Callers: 1, Do: deny},
		{Name: "Check, leased, 1 rule of 3 limits", Callers: 1, Do: checkOne},
		{Name: "Check, leased, 3 rules", Callers: 1, Do: checkThree},
	}
	for i := range variants {
		variants[i].Warm = b.Slice
	}
	got := b.Measure(fmt.Sprintf("in process, zipf over %d subjects", hot), b.Rounds, b.Slice/2, variants)
	for i, v := range variants {
		fmt.Printf("%s: %.2f %% on that path\n", v.Name, tallies[i].share())
	}
	nanos := func(sample paired.Sample) float64 { return 1000 * sample.ClientCPU }
	for i, target := range []float64{300, 0, 300, 1500, 1500} {
		if name := variants[i].Name; target > 0 {
			b.ExpectMax(name+", CPU ns", got.Median(name, nanos), target)
		}
	}
	b.ExpectMaxValue("Take, leased, allocations", testing.AllocsPerRun(10_000, func() { _ = take(0, 0) }), 0)
}

// checks returns whole decisions, with attributes of users, tenants and addresses.
func (b *bench) checks(store headgate.Store, t *tally, rules ...headgate.Rule) do {
	limiter, err := headgate.New(store, rules...)
	testenv.NoError(b, err)
	requests := make([]headgate.Request, hot)
	for i := range requests {
		requests[i].Attributes = headgate.Attributes{
			"path": "/v1/things", "method": "GET", "user": b.draws.keys[i],
			"tenant": fmt.Sprintf("tenant-%d", i/10), "ip": fmt.Sprintf("192.0.2.%d", i%256),
		}
	}
	return func(caller, n int) error {
		d, err := limiter.Check(context.Background(), requests[next(b.draws.hot, caller, n)])
		t.note(caller, n, d.Path == headgate.PathLease)
		return err
	}
}

// library compares calls to Redis, and how many of them leases save where most subjects are rare.
func (b *bench) library() {
	store, client := b.open(), bare.Open(b, b.redis.Addr())
	byKey := func(call peer.Library) do {
		return func(caller, n int) error { return call(b.draws.keys[next(b.draws.all, caller, n)]) }
	}
	strict := charge("strict", headgate.PerMinute(1_000_000))
	strict.Strict = true
	var leased, byStore tally
	variants := []paired.Variant{
		{Name: "bare client, smallest script", Do: byKey(func(key string) error {
			return bare.Check(context.Background(), client, "bare:"+key).Error()
		})},
		{Name: "redis_rate", Do: byKey(peer.RedisRate(b, b.redis.Addr()))},
		{Name: "ulule/limiter", Do: byKey(peer.UluleRedis(b, b.redis.Addr()))},
		{Name: "Headgate, strict", Do: b.takes(store, b.draws.all, strict, "", &byStore)},
		{Name: "Headgate", Do: b.takes(store, b.draws.all, charge("zipf", plenty), headgate.PathLease, &leased)},
	}
	for i := range variants {
		variants[i].Callers, variants[i].ServerCPU = callers, b.redisCPU
	}
	got := b.Measure(fmt.Sprintf("Redis, %d callers, zipf over %d subjects", callers, subjects), b.Rounds, b.Slice, variants)
	fmt.Printf("strict: %.2f %% were decided by Redis; otherwise %.2f %% were leased\n", byStore.share(), leased.share())
	b.ratio(got, "Headgate, strict", "bare client, smallest script", 0.85)
	b.ratio(got, "Headgate, strict", "redis_rate", 1.3)
	b.ratio(got, "Headgate, strict", "ulule/limiter", 1.3)
	b.chart("Go library, counters in Redis, 100,000 subjects", got, variants, true)
}

func (b *bench) redisCPU() time.Duration { return b.redis.CPU(b) }
