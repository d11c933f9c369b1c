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
		said []announcement // two seconds apart
		want int64
	}{
		"rises at once":                    {[]announcement{{nodes: 1}, {nodes: 3, kept: true}, {nodes: 4, kept: true}}, 4},
		"rises at once after a loss":       {[]announcement{{nodes: 3}, {nodes: 4}}, 4},
		"keeps its number after a loss":    {[]announcement{{nodes: 3}, {nodes: 1}, {nodes: 2, kept: true}}, 3},
		"keeps it while losses go on":      {[]announcement{{nodes: 3}, {nodes: 1}, {nodes: 1}, {nodes: 1}, {nodes: 1}, {nodes: 1}, {nodes: 1}, {nodes: 1}}, 3},
		"falls a lifetime after a loss":    {append([]announcement{{nodes: 3}, {nodes: 1}}, keptFor(5, 1)...), 1},
		"but not a turn before":            {append([]announcement{{nodes: 3}, {nodes: 1}}, keptFor(4, 1)...), 3},
		"falls at once if nothing is lost": {append(append([]announcement{{nodes: 3}}, keptFor(5, 3)...), keptFor(1, 2)...), 2},
	} {
		var m membership
		for i, a := range c.said {
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

// keptFor returns announcements in a set that is not lost.
func keptFor(turns int, nodes int64) []announcement {
	said := make([]announcement, turns)
	for i := range said {
		said[i] = announcement{nodes: nodes, kept: true}
	}
	return said
}

// Whatever happens to the store, nodes that have known all of them go on knowing at least those that are there. If none was stopped
// or killed, each has a rank of its own among just as many: shares by rank add up to the limit (storewrap.TestSharesAddUp).
func TestMembershipOutlivesFaults(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	sum := map[string]int{}
	for seed := range uint64(400) {
		w := newFaultWorld(seed)
		if err := w.live(); err != nil {
			t.Fatalf("seed %d, %v after the start, %s: %v", seed, w.now.Sub(faultWorldStart), w.history, err)
		}
		for what, n := range w.happened {
			sum[what] += n
		}
	}
	t.Log(sum)
	for _, what := range []string{"outage", "restart empty", "old replica", "flush", "clock set", "turn missed", "kill", "stop"} {
		if sum[what] < 50 {
			t.Errorf("%s: happened %d times only", what, sum[what])
		}
	}
}

var faultWorldStart = time.Unix(1_700_000_000, 0)

// faultWorld is nodes that announce themselves to a store on which faults are inflicted, in virtual time.
type faultWorld struct {
	random   *rand.Rand
	now      time.Time
	nodes    []*faultNode
	gone     int // nodes that were stopped or killed
	history  string
	happened map[string]int

	set         map[int]int64   // announcements, until when
	states      []map[int]int64 // of the set, a tenth of a second apart
	clockOffset time.Duration   // of the store's clock
	up          time.Time       // from when on the store is available
	calm        time.Time       // until when no fault follows
	rests       bool            // there are no more faults
}

type faultNode struct {
	id     int
	next   time.Time // turn
	missed bool      // the last one
	gone   bool
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

// below returns a random duration.
func (w *faultWorld) below(d time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(d)))
}

func (w *faultWorld) note(what string) {
	w.happened[what]++
	w.history += fmt.Sprintf("%s at %v; ", what, w.now.Sub(faultWorldStart))
}

// live plays five minutes, and some at the end without faults.
func (w *faultWorld) live() error {
	const step, lasts, rest = 100 * time.Millisecond, 5 * time.Minute, time.Minute
	for ; w.now.Before(faultWorldStart.Add(lasts)); w.now = w.now.Add(step) {
		if w.rests = !w.now.Before(faultWorldStart.Add(lasts - rest)); !w.rests && w.now.After(w.calm) && w.random.IntN(60) == 0 {
			w.inflict()
		}
		w.turns()
		w.states = append(w.states, maps.Clone(w.set))
		if err := w.evaluate(); err != nil {
			return err
		}
	}
	there, rank := int64(len(w.nodes)-w.gone), int64(0)
	for _, n := range w.nodes {
		if n.gone {
			continue
		}
		if rank++; n.nodes != there || n.rank != rank {
			return fmt.Errorf("in the end node %d knows of %d nodes and is number %d, want %d and %d", n.id, n.nodes, n.rank, there, rank)
		}
	}
	return nil
}

// inflict does something to the store or to a node.
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
		w.calm = w.now.Add(2 * heartbeatInterval) // twice at once, there and back, goes unnoticed
	default:
		w.remove(w.nodes[w.random.IntN(len(w.nodes))])
	}
}

// remove stops or kills a node, in some of the worlds and not the last one.
func (w *faultWorld) remove(n *faultNode) {
	if len(w.nodes)%2 == 0 || n.gone || len(w.nodes)-w.gone == 1 || w.now.Before(w.up) {
		return
	}
	n.gone = true
	w.gone++
	if w.random.IntN(2) == 0 {
		w.note("kill")
		return
	}
	w.note("stop")
	delete(w.set, n.id)
}

// turns lets nodes announce themselves whose turn it is. A turn may fail now and then.
func (w *faultWorld) turns() {
	for _, n := range w.nodes {
		if n.gone || w.now.Before(n.next) {
			continue
		}
		n.next = w.now.Add(heartbeatInterval)
		if w.now.Before(w.up) {
			continue
		}
		if !w.rests && !n.missed && w.now.Sub(w.up) > 2*heartbeatInterval && w.random.IntN(20) == 0 {
			n.missed = true
			w.happened["turn missed"]++
			continue
		}
		n.missed = false
		n.membership = n.observe(w.announce(n), w.now)
	}
}

// announce does what announce.lua does.
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

// judge looks at what nodes know, once all have known all.
func (w *faultWorld) evaluate() error {
	if w.now.Sub(faultWorldStart) < 2*heartbeatInterval {
		return nil
	}
	there := len(w.nodes) - w.gone
	for _, n := range w.nodes {
		switch {
		case n.gone:
		case n.nodes < int64(there):
			return fmt.Errorf("node %d knows of %d of %d nodes", n.id, n.nodes, there)
		case w.gone == 0 && (n.nodes != int64(there) || n.rank != int64(n.id)):
			return fmt.Errorf("node %d is number %d of %d, all of %d are there", n.id, n.rank, n.nodes, there)
		}
	}
	return nil
}
