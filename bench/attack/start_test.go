package attack

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// join starts nodes with the default options, all at once, and returns when Redis has decided a request of each.
func join(t *testing.T, redis *testenv.Server, n int) []*member {
	t.Helper()
	nodes := newMembers(t, redis, n)
	for _, m := range nodes {
		m.awaitPath(t, headgate.PathStore, "other")
	}
	return nodes
}

// agreed reports whether each node knows the number of nodes and has its own rank.
func agreed(t *testing.T, nodes []*member) bool {
	t.Helper()
	ranks := map[int32]bool{}
	for i, m := range nodes {
		r, err := headgate.Take(t.Context(), m.inner, headgate.PerHour(1_000_000), "looks", strconv.Itoa(i))
		if err != nil || int(r.Nodes) != len(nodes) {
			return false
		}
		ranks[r.Rank] = true
	}
	return len(ranks) == len(nodes)
}

// TestOutageAtStart kills Redis less than a second after nodes were started together, or after a scale-up to twice as many. Nodes
// announce themselves every two seconds, and must know of each other nevertheless: their shares add up to the limit.
func TestOutageAtStart(t *testing.T) {
	t.Parallel()
	for how, start := range map[string]func(*testing.T, *testenv.Server) []*member{
		"together": func(t *testing.T, redis *testenv.Server) []*member { return join(t, redis, fleetSize) },
		"scale-up": func(t *testing.T, redis *testenv.Server) []*member {
			first := join(t, redis, fleetSize/2)
			time.Sleep(100 * time.Millisecond)
			return append(first, join(t, redis, fleetSize-len(first))...)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			const tries = 3 // the machine may be busy
			for try := 1; ; try++ {
				redis := startRedis(t)
				began := time.Now()
				nodes := start(t, redis)
				served, counted, known := time.Since(began), time.Duration(0), false
				for end := time.Now().Add(time.Second); !known && time.Now().Before(end); time.Sleep(time.Millisecond) {
					if counted == 0 && !slices.ContainsFunc(nodes, func(m *member) bool { return m.inner.Nodes() < len(nodes) }) {
						counted = time.Since(began)
					}
					known = agreed(t, nodes)
				}
				t.Logf("all nodes serve after %v; each knows how many there are after %v, and its rank (%v) after %v",
					served, counted, known, time.Since(began))
				if !known && try < tries {
					continue
				}
				redis.Kill()
				judgeFleet(t, how, nodes)
				return
			}
		})
	}
}
