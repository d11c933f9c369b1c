package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storewrap"
)

const nodes = 3

// nodeFleet is nodes of the library with one concurrency limit, and a Redis of their own.
type nodeFleet struct {
	*paired.Suite
	server   *testenv.Server
	limiters []*headgate.Limiter
}

func newFleet(s *paired.Suite, scope *suite.Scope, count int, limit headgate.Limit) *nodeFleet {
	f := &nodeFleet{Suite: s, server: testenv.Start(scope, testenv.Redis)}
	for range count {
		store := fleet.Wrap(scope, "redis://"+f.server.Addr(), storewrap.Options{})
		limiter, err := headgate.New(store, headgate.Rule{ID: "slots", By: []string{"tenant"}, Limit: limit})
		testenv.NoError(scope, err)
		scope.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			testenv.NoError(scope, limiter.Close(ctx)) // it would otherwise renew its leases for ever
		})
		f.limiters = append(f.limiters, limiter)
	}
	scope.Sleep(2200 * time.Millisecond) // until the nodes know of each other
	return f
}

// begin begins a request of a tenant on a node.
func (f *nodeFleet) begin(node int, tenant string) headgate.Decision {
	d, err := f.limiters[node].Begin(context.Background(), headgate.Request{Attributes: headgate.Attributes{"tenant": tenant}})
	testenv.NoError(f, err)
	return d
}

// calls returns how many calls Redis has served so far.
func (f *nodeFleet) calls() (n float64) {
	stats := f.server.Info(f, "commandstats")
	for _, name := range []string{"evalsha", "eval", "fcall"} {
		_, text, _ := strings.Cut(stats["cmdstat_"+name], "calls=")
		text, _, _ = strings.Cut(text, ",")
		count, _ := strconv.ParseFloat(text, 64)
		n += count
	}
	return n
}

// measureFleet measures what the nodes' own account saves, and what renewals cost.
func measureFleet(s *paired.Suite) {
	run := func(f func(*suite.Scope)) { testenv.NoError(s, s.Run(f)) }
	run(func(scope *suite.Scope) { hotCounter(s, scope) })
	for _, lease := range []time.Duration{headgate.Concurrent(1).Window, time.Minute} {
		run(func(scope *suite.Scope) { manyCounters(s, scope, lease) })
	}
	run(func(scope *suite.Scope) { manyConnections(s, scope) })
}

// hotCounter has nodes use a counter below the part of its limit up to which released units are kept.
func hotCounter(s *paired.Suite, scope *suite.Scope) {
	const limit, length = 100, 5 * time.Second
	f := newFleet(s, scope, nodes, headgate.Concurrent(limit))
	for _, each := range []int{8, 20} { // callers of each node
		before, requests := f.calls(), 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for end, i := time.Now().Add(length), 0; i < nodes*each; i++ {
			all.Go(func() {
				own := 0
				for ; time.Now().Before(end); own++ {
					d := f.begin(i%nodes, "hot")
					time.Sleep(rand.N(5 * time.Millisecond))
					d.Done(headgate.Outcome{})
				}
				mu.Lock()
				defer mu.Unlock()
				requests += own
			})
		}
		all.Wait()
		s.ExpectMaxValue(fmt.Sprintf("hot counter, %d %% of its limit: calls to Redis per 100 requests", 100*nodes*each/limit),
			100*(f.calls()-before)/float64(requests), 10)
	}
}

// manyCounters has one node hold a unit of each of many counters, which it must renew.
func manyCounters(s *paired.Suite, scope *suite.Scope, lease time.Duration) {
	const counters, workers = 100_000, 32
	limit := headgate.Concurrent(1)
	limit.Window = lease
	f := newFleet(s, scope, 1, limit)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < counters; i += workers {
				f.begin(0, strconv.Itoa(i))
			}
		})
	}
	all.Wait()
	scope.Sleep(lease / 3) // until renewals are spread as they will be
	used, own, calls, began := f.server.CPU(s), paired.CPU(), f.calls(), time.Now()
	scope.Sleep(max(20*time.Second, lease*2/3))
	elapsed := time.Since(began).Seconds()
	name := fmt.Sprintf("%d counters, lease %s: ", counters, lease)
	cpu := 100 * (f.server.CPU(s) - used).Seconds() / elapsed
	if what := name + "Redis CPU, % of a core"; lease < time.Minute {
		s.Note(what, single(cpu))
	} else {
		s.ExpectMaxValue(what, cpu, 5)
	}
	s.Note(name+"node CPU, % of a core", single(100*(paired.CPU()-own).Seconds()/elapsed))
	s.Note(name+"calls/s", single((f.calls()-calls)/elapsed))
	lost := 0
	for i := range counters / 100 {
		d, err := f.limiters[0].Peek(context.Background(), headgate.Request{Attributes: headgate.Attributes{"tenant": strconv.Itoa(100 * i)}})
		testenv.NoError(scope, err)
		if d.Path == headgate.PathStore && d.Limits[0].Remaining > 0 {
			lost++
		}
	}
	s.ExpectMaxValue(name+fmt.Sprintf("lost of %d", counters/100), float64(lost), 0)
}

// manyConnections has nodes hold connections of one tenant.
func manyConnections(s *paired.Suite, scope *suite.Scope) {
	const connections, length = 10_000, 20 * time.Second
	f := newFleet(s, scope, nodes, headgate.Concurrent(2*connections))
	for i := range connections {
		f.begin(i%nodes, "acme")
	}
	scope.Sleep(2 * time.Second)
	before := f.calls()
	scope.Sleep(length)
	s.ExpectMaxValue(fmt.Sprintf("%d connections of a tenant: renewals per node and second", connections),
		(f.calls()-before)/nodes/length.Seconds(), 1)
	client := bare.Open(scope, f.server.Addr())
	keys, err := client.Do(context.Background(), client.B().Keys().Pattern("hg2:*").Build()).AsStrSlice()
	testenv.NoError(scope, err)
	var longest []int
	for _, key := range keys {
		fields, err := client.Do(context.Background(), client.B().Hgetall().Key(key).Build()).AsStrMap()
		if err != nil {
			continue // another kind of key
		}
		for _, value := range fields {
			longest = append(longest, len(value))
		}
	}
	const counter, holder = 18, 26 // bytes, see docs/redis.md
	s.ExpectMaxValue(fmt.Sprintf("%d connections of a tenant: entries in Redis", connections), float64(slices.Max(longest)-counter)/holder, nodes)
}

// single returns a number as a median.
func single(v float64) paired.Median { return paired.Median{Value: v, Low: v, High: v} }
