package redisstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

func TestMembership(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		replies []announcement // two seconds apart
		want    int64
	}{
		"rises at once":                    {[]announcement{{nodes: 1}, {nodes: 3, kept: true}, {nodes: 4, kept: true}}, 4},
		"rises at once after a loss":       {[]announcement{{nodes: 3}, {nodes: 4}}, 4},
		"keeps its number after a loss":    {[]announcement{{nodes: 3}, {nodes: 1}, {nodes: 2, kept: true}}, 3},
		"keeps it while losses continue":   {[]announcement{{nodes: 3}, {nodes: 1}, {nodes: 1}, {nodes: 1}, {nodes: 1}, {nodes: 1}, {nodes: 1}, {nodes: 1}}, 3},
		"falls a lifetime after a loss":    {append([]announcement{{nodes: 3}, {nodes: 1}}, keptFor(5, 1)...), 1},
		"but not a heartbeat before":       {append([]announcement{{nodes: 3}, {nodes: 1}}, keptFor(4, 1)...), 3},
		"falls at once if nothing is lost": {append(append([]announcement{{nodes: 3}}, keptFor(5, 3)...), keptFor(1, 2)...), 2},
	} {
		var m membership
		for i, a := range c.replies {
			a.rank = a.nodes
			m = m.observe(a, start.Add(time.Duration(i)*heartbeatInterval))
		}
		if m.nodes != c.want || m.rank != c.want {
			t.Errorf("%s: %d nodes, rank %d, want %d", name, m.nodes, m.rank, c.want)
		}
	}
	m := membership{}.observe(announcement{nodes: 3, rank: 3}, start)
	m = m.observe(announcement{nodes: 1, rank: 1, kept: true}, start.Add(time.Hour))
	if m.nodes != 3 || m.rank != 3 {
		t.Errorf("an hour without the store: %d nodes, rank %d", m.nodes, m.rank)
	}
	if m = m.observe(announcement{nodes: 3, rank: 2}, start.Add(time.Hour)); m.rank != 2 {
		t.Errorf("as many nodes, others among them: rank %d", m.rank)
	}
}

// keptFor returns the replies of a set that is not lost.
func keptFor(announceDue int, nodes int64) []announcement {
	replies := make([]announcement, announceDue)
	for i := range replies {
		replies[i] = announcement{nodes: nodes, kept: true}
	}
	return replies
}

// Whatever happens to the store, nodes that have once known all nodes never count fewer than are alive. If none was stopped
// or killed, each has its own rank among exactly as many: shares by rank add up to the limit (storewrap.TestSharesAddUp).
func TestMembershipOutlivesFaults(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	sum := map[string]int{}
	for seed := range uint64(400) {
		w := newFaultWorld(seed)
		if err := w.simulate(); err != nil {
			t.Fatalf("seed %d, %v after the start, %s: %v", seed, w.now.Sub(faultWorldStart), w.history, err)
		}
		for what, n := range w.happened {
			sum[what] += n
		}
	}
	t.Log(sum)
	for _, what := range []string{"outage", "restart empty", "old replica", "flush", "clock set", "turn missed", "kill", "stop"} {
		if sum[what] < 50 {
			t.Errorf("%s: happened only %d times", what, sum[what])
		}
	}
}

var faultWorldStart = time.Unix(1_700_000_000, 0)

// faultWorld simulates nodes that announce themselves to a faulty store, in virtual time.
type faultWorld struct {
	random   *rand.Rand
	now      time.Time
	nodes    []*faultNode
	removed  int // number of nodes stopped or killed
	history  string
	happened map[string]int

	set         map[int]int64   // announcements and their expiry
	states      []map[int]int64 // history of the set, a tenth of a second apart
	clockOffset time.Duration   // of the store
	up          time.Time       // the store is available from then on
	calm        time.Time       // no fault follows before
	quiet       bool            // no more faults follow
}

type faultNode struct {
	id      int
	next    time.Time // heartbeat
	missed  bool      // the last heartbeat
	removed bool
	membership
}

func newFaultWorld(seed uint64) *faultWorld {
	w := &faultWorld{
		random: rand.New(rand.NewPCG(seed, 0)), now: faultWorldStart, up: faultWorldStart,
		calm: faultWorldStart.Add(2 * heartbeatInterval), set: map[int]int64{}, happened: map[string]int{},
	}
	for i := range 1 + w.random.IntN(12) {
		w.nodes = append(w.nodes, &faultNode{id: i + 1, next: w.now.Add(w.below(heartbeatInterval))})
	}
	return w
}

// below returns a random duration below d.
func (w *faultWorld) below(d time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(d)))
}

func (w *faultWorld) note(what string) {
	w.happened[what]++
	w.history += fmt.Sprintf("%s at %v; ", what, w.now.Sub(faultWorldStart))
}

// simulate runs five minutes, the last of them without faults.
func (w *faultWorld) simulate() error {
	const step, lasts, rest = 100 * time.Millisecond, 5 * time.Minute, time.Minute
	for ; w.now.Before(faultWorldStart.Add(lasts)); w.now = w.now.Add(step) {
		if w.quiet = !w.now.Before(faultWorldStart.Add(lasts - rest)); !w.quiet && w.now.After(w.calm) && w.random.IntN(60) == 0 {
			w.inflict()
		}
		w.announceDue()
		w.states = append(w.states, maps.Clone(w.set))
		if err := w.check(); err != nil {
			return err
		}
	}
	alive, rank := int64(len(w.nodes)-w.removed), int64(0)
	for _, n := range w.nodes {
		if n.removed {
			continue
		}
		if rank++; n.nodes != alive || n.rank != rank {
			return fmt.Errorf("at the end node %d counts %d nodes and has rank %d, want %d and %d", n.id, n.nodes, n.rank, alive, rank)
		}
	}
	return nil
}

// inflict causes a random fault of the store or of a node.
func (w *faultWorld) inflict() {
	outage := func() {
		w.up = w.now.Add(w.below([]time.Duration{time.Second, 4 * time.Second, 30 * time.Second}[w.random.IntN(3)]))
	}
	switch w.random.IntN(8) {
	case 0, 1:
		w.note("restart empty")
		outage()
		clear(w.set)
	case 2:
		w.note("outage")
		outage()
	case 3:
		w.note("old replica")
		outage()
		w.set = maps.Clone(w.states[max(0, len(w.states)-1-w.random.IntN(200))])
	case 4:
		w.note("flush")
		clear(w.set)
	case 5:
		w.note("clock set")
		w.clockOffset += w.below(40*time.Second) - 20*time.Second
		w.calm = w.now.Add(2 * heartbeatInterval) // two opposite steps at once would not be detected
	default:
		w.remove(w.nodes[w.random.IntN(len(w.nodes))])
	}
}

// remove stops or kills a node, in half of the worlds and never the last node.
func (w *faultWorld) remove(n *faultNode) {
	if len(w.nodes)%2 == 0 || n.removed || len(w.nodes)-w.removed == 1 || w.now.Before(w.up) {
		return
	}
	n.removed = true
	w.removed++
	if w.random.IntN(2) == 0 {
		w.note("kill")
		return
	}
	w.note("stop")
	delete(w.set, n.id)
}

// announceDue lets the nodes announce themselves whose heartbeat is due. Occasionally a heartbeat is missed.
func (w *faultWorld) announceDue() {
	for _, n := range w.nodes {
		if n.removed || w.now.Before(n.next) {
			continue
		}
		n.next = w.now.Add(heartbeatInterval)
		if w.now.Before(w.up) {
			continue
		}
		if !w.quiet && !n.missed && w.now.Sub(w.up) > 2*heartbeatInterval && w.random.IntN(20) == 0 {
			n.missed = true
			w.happened["turn missed"]++
			continue
		}
		n.missed = false
		n.membership = n.observe(w.announce(n), w.now)
	}
}

// announce simulates announce.lua.
func (w *faultWorld) announce(n *faultNode) announcement {
	ms := w.now.Add(w.clockOffset).UnixMilli()
	maps.DeleteFunc(w.set, func(_ int, until int64) bool { return until <= ms })
	before, kept := w.set[n.id]
	a := announcement{until: ms + announceTTL.Milliseconds(), kept: kept && before == n.until}
	w.set[n.id] = a.until
	for id := range w.set {
		a.nodes++
		if id <= n.id {
			a.rank++
		}
	}
	return a
}

// check checks what nodes know, once all have known all.
func (w *faultWorld) check() error {
	if w.now.Sub(faultWorldStart) < 2*heartbeatInterval {
		return nil
	}
	alive := len(w.nodes) - w.removed
	for _, n := range w.nodes {
		switch {
		case n.removed:
		case n.nodes < int64(alive):
			return fmt.Errorf("node %d counts %d of %d nodes", n.id, n.nodes, alive)
		case w.removed == 0 && (n.nodes != int64(alive) || n.rank != int64(n.id)):
			return fmt.Errorf("node %d has rank %d of %d, all of %d are alive", n.id, n.rank, n.nodes, alive)
		}
	}
	return nil
}
