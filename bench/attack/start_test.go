package attack

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// join starts nodes with the default options, all at once, and returns when Redis has decided for each of them.
func join(t *testing.T, redis *testenv.Server, n int) []*member {
	t.Helper()
	nodes := newMembers(t, redis, n)
	for _, m := range nodes {
		m.decides(t, headgate.PathStore, "other")
	}
	return nodes
}

// agreed reports whether each node knows of all, and which of them it is.
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

// TestOutageAtStart takes Redis from nodes less than a second after they were started together, or after as many again have joined
// them. Nodes announce themselves every two seconds, and know of each other all the same: their shares add up to the limit.
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
			const tries = 3 // others may use the machine meanwhile
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
