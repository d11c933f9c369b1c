// Command concurrency measures what concurrency limits cost Redis: acquiring and releasing a unit, compared with a plain charge and
// with a sorted set that has a member per request; what nodes save by keeping units; and renewals of leases. It ends with a verdict for each target and fails if one is missed.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
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
	callers = 32
	tenants = 20
	// lease is long, so that no holder expires between the slices of a variant.
	lease = time.Hour
)

func main() {
	paired.Main(15, 300*time.Millisecond, func(s *paired.Suite) {
		server := testenv.Start(s, testenv.Redis)
		store := fleet.Open(s, "redis://"+server.Addr())
		variants := []paired.Variant{{Name: "plain", Do: plain(store)}}
		for _, v := range []struct{ nodes, inFlight int }{
			{1, 20}, {1, 900}, {4, 20}, {4, 900}, {50, 50}, {50, 900}, {500, 900}, {headgate.MaxHolders, headgate.MaxHolders},
		} {
			name := fmt.Sprintf("%d nodes, %d in flight", v.nodes, v.inFlight)
			p := pairs{store: store, name: name, nodes: v.nodes}
			testenv.NoError(s, p.fill(v.inFlight))
			variants = append(variants, paired.Variant{Name: name, Do: p.acquireAndRelease})
		}
		for _, inFlight := range []int{20, 900} {
			set := newSortedSet(s, server.Addr(), inFlight)
			variants = append(variants, paired.Variant{Name: set.name, Do: set.acquireAndRelease})
		}
		for i := range variants {
			variants[i].Callers, variants[i].ServerCPU = callers, func() time.Duration { return server.CPU(s) }
		}
		got := s.Measure(fmt.Sprintf("Acquire and release, %d callers, %d tenants", callers, tenants), s.Rounds, s.Slice, variants)
		targets := map[string]float64{
			"1 nodes, 20 in flight": 2.2, "1 nodes, 900 in flight": 2.2, "4 nodes, 20 in flight": 2.2, "4 nodes, 900 in flight": 2.2,
			"50 nodes, 50 in flight": 3.5, "50 nodes, 900 in flight": 3.5,
		}
		for _, v := range variants[1:] {
			what, ratio := v.Name+" ÷ plain charge, Redis CPU", got.Ratio(v.Name, "plain", paired.ServerCPU)
			if target := targets[v.Name]; target > 0 {
				s.ExpectMax(what, ratio, target)
			} else {
				s.Note(what, ratio)
			}
		}
		s.ExpectMax("4 nodes, 900 ÷ 20 in flight, Redis CPU",
			got.Ratio("4 nodes, 900 in flight", "4 nodes, 20 in flight", paired.ServerCPU), 1.1)
		measureFleet(s)
	})
}

// tenant returns the subject of a call.
func tenant(name string, caller, n int) headgate.Subject {
	return headgate.SubjectOf(name, strconv.Itoa(bare.Spread(caller, n)%tenants))
}

// plain makes plain charges.
func plain(store *redisstore.Store) func(caller, n int) error {
	limit := headgate.PerHour(1_000_000_000)
	counter := headgate.CounterOf("plain", "", limit.Algorithm)
	return func(caller, n int) error {
		return take(store, headgate.Charge{Subject: tenant("plain", caller, n), Counter: counter, Limit: limit, Cost: 1})
	}
}

var errDenied = errors.New("denied")

func take(store *redisstore.Store, c headgate.Charge) error {
	var results [1]headgate.Result
	err := store.Take(context.Background(), []headgate.Charge{c}, results[:])
	if err == nil && !results[0].Allowed {
		err = errDenied
	}
	return err
}

// pairs acquires and releases units of tenants for random nodes.
type pairs struct {
	store *redisstore.Store
	name  string
	nodes int
	seq   atomic.Int64
}

func (p *pairs) charge(subject headgate.Subject, node int, op headgate.SlotOp, units int64) headgate.Charge {
	limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: 1_000_000, Window: lease}
	id := headgate.SubjectOf("node", strconv.Itoa(node))
	return headgate.Charge{
		Subject: subject, Counter: headgate.CounterOf("bench", "", limit.Algorithm), Limit: limit, Cost: units, Slots: op,
		Holder: binary.LittleEndian.Uint64(id[:]), Seq: p.seq.Add(1),
	}
}

// fill distributes units over the nodes.
func (p *pairs) fill(inFlight int) error {
	for i := range tenants {
		subject := headgate.SubjectOf(p.name, strconv.Itoa(i))
		for node := range p.nodes {
			units := inFlight*(node+1)/p.nodes - inFlight*node/p.nodes
			if err := take(p.store, p.charge(subject, node, headgate.SetSlots, int64(units))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pairs) acquireAndRelease(caller, n int) error {
	subject, node := tenant(p.name, caller, n), bare.Spread(n, caller)%p.nodes
	if err := take(p.store, p.charge(subject, node, headgate.AcquireSlots, 1)); err != nil {
		return err
	}
	return take(p.store, p.charge(subject, node, headgate.ReleaseSlots, 1))
}

// sortedSet counts requests as members of a sorted set, by the time at which they expire.
type sortedSet struct {
	client rueidis.Client
	name   string
	member atomic.Int64
}

var (
	acquireScript = rueidis.NewLuaScript(`
local now = redis.call('TIME') now = now[1] * 1000000 + now[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3] / 1000)
return 1`)
	releaseScript = rueidis.NewLuaScript(`return redis.call('ZREM', KEYS[1], ARGV[1])`)
)

func newSortedSet(s *paired.Suite, addr string, inFlight int) *sortedSet {
	set := &sortedSet{client: bare.Open(s, addr), name: fmt.Sprintf("sorted set, %d in flight", inFlight)}
	for i := range tenants * inFlight {
		_, err := set.acquire(set.key(headgate.SubjectOf(set.name, strconv.Itoa(i%tenants))))
		testenv.NoError(s, err)
	}
	return set
}

func (z *sortedSet) key(subject headgate.Subject) string { return "set:" + subject.String() }

func (z *sortedSet) acquire(key string) (member string, err error) {
	member = fmt.Sprintf("%016x", z.member.Add(1))
	err = acquireScript.Exec(context.Background(), z.client, []string{key}, []string{member, "1000000", "3600000000"}).Error()
	return member, err
}

func (z *sortedSet) acquireAndRelease(caller, n int) error {
	key := z.key(tenant(z.name, caller, n))
	member, err := z.acquire(key)
	if err != nil {
		return err
	}
	return releaseScript.Exec(context.Background(), z.client, []string{key}, []string{member}).Error()
}
