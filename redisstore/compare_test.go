package redisstore

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storetest"
)

// The comparison with the specification: long on one server, shorter on each other topology and engine.
const (
	longComparison  = 200_000
	shortComparison = 10_000
)

// topologies are all that the store supports, on both engines.
var topologies = map[string]func(testing.TB) (address string, servers []*testenv.Server){
	"redis standalone": func(t testing.TB) (string, []*testenv.Server) {
		s := testenv.Start(t, testenv.Redis)
		return standalone(s), []*testenv.Server{s}
	},
	"redis sentinel": func(t testing.TB) (string, []*testenv.Server) {
		s := testenv.StartSentinels(t, testenv.Redis)
		return sentinels(s), []*testenv.Server{s.Primary(t)}
	},
	"redis cluster": func(t testing.TB) (string, []*testenv.Server) {
		c := testenv.StartCluster(t, testenv.Redis)
		return cluster(c), c.Primaries(t)
	},
	"valkey standalone": func(t testing.TB) (string, []*testenv.Server) {
		s := testenv.Start(t, testenv.Valkey)
		return standalone(s), []*testenv.Server{s}
	},
	"valkey cluster": func(t testing.TB) (string, []*testenv.Server) {
		c := testenv.StartCluster(t, testenv.Valkey)
		return cluster(c), c.Primaries(t)
	},
}

// TestSuite holds the store to the whole suite and to the specification, on every topology.
func TestSuite(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, servers := start(t)
			namespaces := 0
			open := func(t testing.TB) storetest.Target {
				namespaces++
				return openWithClock(t, address, fmt.Sprint("suite-", namespaces), nil)
			}
			charges := shortComparison
			if name == "redis standalone" {
				charges = longComparison
			}
			storetest.Run(t, open, charges)
			if noImmortals(t, servers...) == 0 {
				t.Error("there are no counters to look at")
			}
			for _, s := range servers {
				if err := shortTTL(t, s, "*"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
