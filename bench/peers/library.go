package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/peer"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

var errRefused = errors.New("refused")

// open is our store as users have it, but for a deadline that no busy machine misses.
func (s *suite) open() (*storewrap.Store, error) {
	redis, err := redisstore.Open("redis://" + s.redis.Addr())
	if err != nil {
		return nil, err
	}
	s.scope.Cleanup(redis.Close)
	store := storewrap.New(redis, storewrap.Options{Deadline: time.Second})
	s.scope.Cleanup(store.Close)
	return store, nil
}

// do asks once.
type do = func(caller, n int) error

// takes charges one counter of whoever asks, and notes whether it was decided by path.
func (s *suite) takes(store headgate.Store, from []int32, c headgate.Charge, path headgate.Path, t *tally) do {
	type room struct {
		charges [1]headgate.Charge
		results [1]headgate.Result
		_       [64]byte
	}
	rooms := make([]room, callers)
	for i := range rooms {
		rooms[i].charges[0] = c
	}
	return func(caller, n int) error {
		r := &rooms[caller]
		r.charges[0].Subject = s.draws.ids[next(from, caller, n)]
		err := store.Take(context.Background(), r.charges[:], r.results[:])
		t.note(caller, n, r.results[0].Path == path)
		return err
	}
}

// charge is of a limit that nobody is at, and another that everybody is.
func charge(name string, limit headgate.Limit) headgate.Charge {
	return headgate.Charge{Counter: headgate.CounterOf(name, "", limit.Algorithm), Limit: limit, Cost: 1}
}

var plenty, none = headgate.PerHour(headgate.MaxCost), headgate.PerHour(1)

// local is what costs nothing but CPU: decisions by what is leased, or known to be refused.
func (s *suite) local() error {
	store, err := s.open()
	if err != nil {
		return err
	}
	var tallies [5]tally
	take := s.takes(store, s.draws.hot, charge("leased", plenty), headgate.PathLease, &tallies[0])
	both := s.takes(store, s.draws.hot, charge("both", plenty), headgate.PathLease, &tallies[1])
	refuse := s.takes(store, s.draws.hot, charge("refused", none), headgate.PathCache, &tallies[2])
	checkOne, err := s.checks(store, &tallies[3], headgate.Rule{
		ID: "one", By: []string{"user"}, Limits: map[string]headgate.Limit{
			"second": headgate.PerSecond(headgate.MaxCost), "minute": headgate.PerMinute(headgate.MaxCost), "hour": plenty,
		},
	})
	if err != nil {
		return err
	}
	checkThree, err := s.checks(store, &tallies[4],
		headgate.Rule{ID: "user", By: []string{"user"}, Limit: plenty},
		headgate.Rule{ID: "tenant", By: []string{"tenant"}, Limit: plenty},
		headgate.Rule{ID: "ip", By: []string{"ip"}, Limit: plenty})
	if err != nil {
		return err
	}
	variants := []paired.Variant{
		{Name: "Take, leased", Callers: 1, Do: take},
		{Name: "Take, leased, 2 callers", Callers: 2, Do: both},
		{Name: "Take, refused", Callers: 1, Do: refuse},
		{Name: "Check, leased, 1 rule of 3 limits", Callers: 1, Do: checkOne},
		{Name: "Check, leased, 3 rules", Callers: 1, Do: checkThree},
	}
	for i := range variants {
		variants[i].Warm = s.slice
	}
	got, err := s.measure(fmt.Sprintf("in the process, zipf over %d subjects", hot), s.slice/2, variants)
	if err != nil {
		return err
	}
	for i, v := range variants {
		fmt.Printf("%s: %.2f %% were\n", v.Name, tallies[i].share())
	}
	allocs := testing.AllocsPerRun(10_000, func() { _ = take(0, 0) })
	s.judge(func() {
		nanos := func(sample paired.Sample) float64 { return 1000 * sample.ClientCPU }
		atMost := func(v paired.Variant, most float64) {
			s.aims.AtMost(v.Name+", CPU ns", paired.Of(paired.Field(got[v.Name], nanos)), most)
		}
		atMost(variants[0], 300)
		atMost(variants[2], 300)
		atMost(variants[3], 1500)
		atMost(variants[4], 1500)
		s.aims.AtMost("Take, leased, allocations", paired.Of([]float64{allocs}), 0)
	})
	return nil
}

// checks are whole decisions, by users, their tenants and addresses.
func (s *suite) checks(store headgate.Store, t *tally, rules ...headgate.Rule) (do, error) {
	limiter, err := headgate.New(store, rules...)
	if err != nil {
		return nil, err
	}
	requests := make([]headgate.Request, hot)
	for i := range requests {
		requests[i].Attributes = headgate.Attributes{
			"path": "/v1/things", "method": "GET", "user": s.draws.keys[i],
			"tenant": fmt.Sprintf("tenant-%d", i/10), "ip": fmt.Sprintf("192.0.2.%d", i%256),
		}
	}
	return func(caller, n int) error {
		d, err := limiter.Check(context.Background(), requests[next(s.draws.hot, caller, n)])
		t.note(caller, n, d.Path == headgate.PathLease)
		return err
	}, nil
}

// library compares calls of Redis, and how much of them leases save where most subjects are asked for rarely.
func (s *suite) library() error {
	store, err := s.open()
	if err != nil {
		return err
	}
	client, err := bare.Open(s.redis.Addr())
	if err != nil {
		return err
	}
	s.scope.Cleanup(client.Close)
	ulule, err := peer.UluleRedis(s.scope, s.redis.Addr())
	if err != nil {
		return err
	}
	byKey := func(ask peer.Library) do {
		return func(caller, n int) error { return ask(s.draws.keys[next(s.draws.all, caller, n)]) }
	}
	strict := charge("strict", headgate.PerMinute(1_000_000))
	strict.Strict = true
	var leased, asked tally
	variants := []paired.Variant{
		{Name: "bare client, smallest script", Do: byKey(func(key string) error {
			return bare.Check(context.Background(), client, "bare:"+key).Error()
		})},
		{Name: "redis_rate", Do: byKey(peer.RedisRate(s.scope, s.redis.Addr()))},
		{Name: "ulule/limiter", Do: byKey(ulule)},
		{Name: "Headgate, strict", Do: s.takes(store, s.draws.all, strict, "", &asked)},
		{Name: "Headgate", Do: s.takes(store, s.draws.all, charge("zipf", plenty), headgate.PathLease, &leased)},
	}
	for i := range variants {
		variants[i].Callers, variants[i].ServerCPU = callers, s.redisCPU
	}
	title := fmt.Sprintf("Redis, %d callers, zipf over %d subjects", callers, subjects)
	got, err := s.measure(title, s.slice, variants)
	if err != nil {
		return err
	}
	fmt.Printf("strict: %.2f %% were decided by Redis; otherwise %.2f %% were leased\n", asked.share(), leased.share())
	s.atLeast(got, "Headgate, strict", "bare client, smallest script", 0.85)
	s.atLeast(got, "Headgate, strict", "redis_rate", 1.3)
	s.atLeast(got, "Headgate, strict", "ulule/limiter", 1.3)
	s.chart("Go library, counters in Redis, 100,000 subjects", got, variants, true)
	return nil
}

func (s *suite) redisCPU() time.Duration { return s.redis.CPU(s.scope) }
