package attack

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// fleetSize nodes share a limit of fleetLimit.
const (
	fleetSize  = 10
	fleetLimit = 1_003 // not a multiple of fleetSize
)

// fleetRules returns a rule for each kind of limit. A bucket hardly refills during a test.
func fleetRules() (rules []headgate.Rule) {
	for _, limit := range []headgate.Limit{
		{Algorithm: headgate.FixedWindow, Count: fleetLimit, Window: 100 * 24 * time.Hour, Align: headgate.OnClock},
		{Algorithm: headgate.TokenBucket, Count: fleetLimit, Window: 100 * 24 * time.Hour},
		{Algorithm: headgate.SlidingWindow, Count: fleetLimit, Window: 100 * 24 * time.Hour},
		{Algorithm: headgate.SlidingLog, Count: fleetLimit, Window: 100 * 24 * time.Hour},
	} {
		name := limit.Algorithm.String()
		rules = append(rules, headgate.Rule{ID: name, Match: headgate.Match{Path: "/" + name}, By: []string{"user"}, Limit: limit})
	}
	return rules
}

// member is one node of a fleet, with the default options.
type member struct {
	inner   *redisstore.Store
	limiter *headgate.Limiter
}

func (m *member) check(t *testing.T, kind, user string, cost int64) headgate.Decision {
	t.Helper()
	d, err := m.limiter.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"path": "/" + kind, "user": user}, Cost: cost})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newMembers starts nodes on one Redis, with the default options. They connect on their first check.
func newMembers(t *testing.T, redis *testenv.Server, n int) []*member {
	t.Helper()
	members := make([]*member, n)
	for i := range members {
		inner, err := redisstore.Open("redis://" + redis.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(inner.Close)
		store := storewrap.New(inner, storewrap.Options{Log: quiet()})
		t.Cleanup(store.Close)
		members[i] = &member{inner, newLimiter(t, store, fleetRules()...)}
	}
	return members
}

// newFleet starts nodes on one Redis, and returns when each of them knows the number of nodes and its own rank. A node learns its
// rank later than the number, and units that do not divide evenly are distributed by rank.
func newFleet(t *testing.T, redis *testenv.Server) []*member {
	t.Helper()
	fleet := newMembers(t, redis, fleetSize)
	for i, m := range fleet {
		eventually(t, "node "+strconv.Itoa(i)+" knowing of all nodes", func() bool {
			return m.inner.Ready(t.Context()) == nil && m.inner.Nodes() == fleetSize
		})
	}
	eventually(t, "each node having its own rank", func() bool { return agreed(t, fleet) })
	return fleet
}

// awaitPath waits until a node decides by a path.
func (m *member) awaitPath(t *testing.T, by headgate.Path, user string) {
	t.Helper()
	eventually(t, "a decision by path "+string(by), func() bool { return m.check(t, fleetRules()[0].ID, user, 1).Path == by })
}

// eventually waits up to 20 seconds for a condition.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}

// judgeFleet has each node admit as much as it will of every kind of limit, in requests of several costs, while Redis is unavailable,
// and compares the sum with the limit.
func judgeFleet(t *testing.T, when string, fleet []*member) {
	t.Helper()
	for _, m := range fleet {
		m.awaitPath(t, headgate.PathLocal, "other")
	}
	for _, rule := range fleetRules() {
		for _, cost := range []int64{1, 7} {
			var admitted int64
			for _, m := range fleet {
				for {
					d := m.check(t, rule.ID, when+strconv.FormatInt(cost, 10), cost)
					if !d.Allowed {
						break
					}
					admitted += cost
				}
			}
			t.Logf("%s, %s, cost %d: %d nodes admitted %d of %d", when, rule.ID, cost, len(fleet), admitted, fleetLimit)
			if admitted > fleetLimit {
				t.Errorf("%s, %s, cost %d: %d nodes admitted %d of %d", when, rule.ID, cost, len(fleet), admitted, fleetLimit)
			}
			if least := fleetLimit - fleetSize*cost; admitted < least {
				t.Errorf("%s, %s, cost %d: %d admitted, at least %d would be within the limit", when, rule.ID, cost, admitted, least)
			}
		}
	}
}

// TestDoubleFault restarts Redis without its data and kills it again before or just when all nodes have announced themselves:
// the first node sees a fleet of one, the next a fleet of two. Their shares still add up to the limit.
func TestDoubleFault(t *testing.T) {
	t.Parallel()
	for _, announced := range []int{1, 4, fleetSize} {
		t.Run(strconv.Itoa(announced)+" announced", func(t *testing.T) {
			t.Parallel()
			redis := startRedis(t)
			fleet := newFleet(t, redis)
			for _, m := range fleet {
				m.awaitPath(t, headgate.PathStore, "other")
			}
			redis.Kill()
			judgeFleet(t, "first outage", fleet)
			for fault := range size(1, 4) {
				redis.Restart(t)
				for _, m := range fleet[:announced] {
					eventually(t, "response after the restart", func() bool { return m.inner.Ready(t.Context()) == nil })
					m.awaitPath(t, headgate.PathStore, "other")
				}
				redis.Kill()
				judgeFleet(t, "outage "+strconv.Itoa(fault+2), fleet)
			}
		})
	}
}

// TestOutageOfIdleFleet makes Redis unavailable to nodes that have decided nothing yet: the size of the fleet that Redis reported
// counts from the first decision on.
func TestOutageOfIdleFleet(t *testing.T) {
	t.Parallel()
	for how, fail := range map[string]func(*testenv.Server){"killed": (*testenv.Server).Kill, "hanging": (*testenv.Server).Pause} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			redis := startRedis(t)
			fleet := newFleet(t, redis)
			fail(redis)
			t.Cleanup(redis.Resume) // nodes sign off
			judgeFleet(t, "outage", fleet)
		})
	}
}
