package redisstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storetest"
)

// Charges of the comparison with the specification: many on one server, fewer on the other topologies and engines, where
// HEADGATE_COMPARISON sets the number.
const (
	longComparison  = 200_000
	shortComparison = 10_000
)

// fromEnv returns a number that the environment sets, or else usual.
func fromEnv(t testing.TB, name string, usual int) int {
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// topologies are all topologies that the store supports, on both engines. Each returns the servers that hold the keys at the
// time of the call, because another one may be promoted while a test runs.
var topologies = map[string]func(testing.TB) (address string, servers func() []*testenv.Server){
	"redis standalone": func(t testing.TB) (string, func() []*testenv.Server) {
		s := testenv.Start(t, testenv.Redis)
		return standalone(s), func() []*testenv.Server { return []*testenv.Server{s} }
	},
	"redis sentinel": func(t testing.TB) (string, func() []*testenv.Server) {
		s := testenv.StartSentinels(t, testenv.Redis)
		return sentinels(s), func() []*testenv.Server { return []*testenv.Server{s.Primary(t)} }
	},
	"redis cluster": func(t testing.TB) (string, func() []*testenv.Server) {
		c := testenv.StartCluster(t, testenv.Redis)
		return cluster(c), func() []*testenv.Server { return c.Primaries(t) }
	},
	"valkey standalone": func(t testing.TB) (string, func() []*testenv.Server) {
		s := testenv.Start(t, testenv.Valkey)
		return standalone(s), func() []*testenv.Server { return []*testenv.Server{s} }
	},
	"valkey cluster": func(t testing.TB) (string, func() []*testenv.Server) {
		c := testenv.StartCluster(t, testenv.Valkey)
		return cluster(c), func() []*testenv.Server { return c.Primaries(t) }
	},
}

// TestSuite runs the conformance suite and the comparison with the specification on every topology.
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
			charges := fromEnv(t, "HEADGATE_COMPARISON", shortComparison)
			if name == "redis standalone" {
				charges = longComparison
			}
			storetest.Run(t, open, charges)
			if checkTTLs(t, servers()...) == 0 {
				t.Error("no counters found")
			}
			for _, s := range servers() {
				if err := shortTTL(t, s, "*"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestKnownSeeds repeats a comparison that failed once: a credit followed an observing charge on the same log, and two slots denied.
func TestKnownSeeds(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	address, _ := topologies["redis cluster"](t)
	for namespace := range 5 { // decides which slots subjects are in
		target := openWithClock(t, address, fmt.Sprint("seed-", namespace), nil)
		c := storetest.Comparison{Charges: shortComparison, Seed: 17382068082587258094, Algorithm: headgate.SlidingLog}
		if err := storetest.Compare(target, c); err != nil {
			t.Error(err)
		}
	}
}

// TestSmallChunks compares logs with much smaller chunks than in production, and concurrency limits with shorter replies.
func TestSmallChunks(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	target := openWithClock(t, standalone(startServer(t)), "chunks", func(text string) string { return smallChunks(t, text) })
	seed := rand.Uint64()
	charges := fromEnv(t, "HEADGATE_COMPARISON", 5*shortComparison)
	for _, algorithm := range []headgate.Algorithm{headgate.SlidingLog, headgate.Concurrency} {
		for _, narrow := range []bool{false, true} {
			c := storetest.Comparison{Charges: charges, Seed: seed, Algorithm: algorithm, Narrow: narrow}
			if err := storetest.Compare(target, c); err != nil {
				t.Error(err)
			}
		}
	}
}
