package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// Kinds of stores.
const (
	redis    = "redis"
	valkey   = "valkey"
	sentinel = "sentinel"
	cluster  = "cluster"
)

// store is the store of a region.
type store struct {
	address string // for servers
	// kill kills a server that has counters, and returns when the store serves again. restore then restarts the killed server, if another
	// one has replaced it.
	kill func(t *suite.Scope, random *rand.Rand) (restore func())
}

// outage is how long a store without replicas is down.
const outage = time.Second

func newStore(t *suite.Scope, kind string, place *testenv.Place, skew time.Duration) *store {
	switch {
	case skew != 0:
		s := testenv.StartFaked(t, testenv.Redis.In(place))
		s.StepClock(t, skew)
		return standalone(s)
	case kind == valkey:
		return standalone(testenv.Start(t, testenv.Valkey.In(place)))
	case kind == sentinel:
		return newSentinels(testenv.StartSentinels(t, testenv.Redis.In(place)))
	case kind == cluster:
		return newCluster(testenv.StartCluster(t, testenv.Redis.In(place), "--cluster-require-full-coverage", "no"))
	default:
		return standalone(testenv.Start(t, testenv.Redis.In(place)))
	}
}

func standalone(s *testenv.Server) *store {
	return &store{address: "redis://" + s.Addr(), kill: func(t *suite.Scope, _ *rand.Rand) (restore func()) {
		s.Kill()
		t.Sleep(outage)
		s.Restart(t)
		return func() {}
	}}
}

func newSentinels(s *testenv.Sentinels) *store {
	address := fmt.Sprintf("sentinel://%s/%s", strings.Join(s.Addrs(), ","), s.Master())
	return &store{address: address, kill: func(t *suite.Scope, _ *rand.Rand) (restore func()) {
		old := s.Primary(t)
		old.Kill()
		testenv.NoError(t, await("a new primary", func() error {
			if s.Primary(t) == old {
				return fmt.Errorf("%s is still announced", old.Addr())
			}
			return nil
		}))
		return func() { old.Restart(t) }
	}}
}

func newCluster(c *testenv.Cluster) *store {
	return &store{address: "cluster://" + strings.Join(c.Addrs(), ","), kill: func(t *suite.Scope, random *rand.Rand) (restore func()) {
		primaries := c.Primaries(t)
		victim := primaries[random.IntN(len(primaries))]
		victim.Kill()
		c.WaitOK(t)
		return func() {
			victim.Restart(t)
			c.WaitOK(t)
		}
	}}
}

// patience is the timeout of all waits.
const patience = 30 * time.Second

// await polls until so returns nil.
func await(what string, so func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := so()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v: %w", what, patience, err)
		}
	}
}
