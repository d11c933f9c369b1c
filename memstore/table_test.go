package memstore

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
)

func TestSlotIsACacheLine(t *testing.T) {
	t.Parallel()
	if size := reflect.TypeFor[slot]().Size(); size != 64 {
		t.Errorf("a slot takes %d bytes", size)
	}
}

func TestShards(t *testing.T) {
	t.Parallel()
	for maxEntries, shards := range map[int]int{1: 1, 2047: 1, 2048: 2, 100_003: 64, 262_143: 128, 262_144: 256, 999_999: 256, 0: 256} {
		s := New(Options{MaxEntries: maxEntries})
		if maxEntries == 0 {
			maxEntries = DefaultMaxEntries
		}
		if len(s.shards) != shards || s.budget.capacity != int64(maxEntries) {
			t.Errorf("MaxEntries %d: %d shards for %d entries", maxEntries, len(s.shards), s.budget.capacity)
		}
	}
}

// TestStoresPlaceSubjectsDifferently checks that subjects that share a shard or neighbouring slots of one store do not share them in
// another store, so that a client cannot learn which subjects to use.
func TestStoresPlaceSubjectsDifferently(t *testing.T) {
	t.Parallel()
	one, other := New(Options{}), New(Options{})
	shards, homes := map[uint8]int{}, map[uint8]int{}
	for n := range 100_000 {
		var p, q place
		c := headgate.Charge{Subject: headgate.SubjectOf(strconv.Itoa(n))}
		one.locate(&c, &p)
		other.locate(&c, &q)
		if p.shard == 0 {
			shards[q.shard]++
		}
		if p.key.hash>>24 == 0 {
			homes[uint8(q.key.hash>>24)]++
		}
	}
	// About 390 subjects are spread over 256 shards; more than 16 in one has a probability of one in a billion.
	for _, met := range []map[uint8]int{shards, homes} {
		if largest := slices.Max(slices.Collect(maps.Values(met))); len(met) < 128 || largest > 16 {
			t.Errorf("subjects of one place are in %d places of another store, up to %d together", len(met), largest)
		}
	}
}

// TestTableAgainstMap charges random counters of a tiny table, most of which collide, and compares it with
// a map after each step.
func TestTableAgainstMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		m := newTableModel(seed)
		for step := range 500 {
			m.step()
			if problem := m.compare(); problem != "" {
				t.Fatalf("seed %d, step %d: %s", seed, step, problem)
			}
		}
	}
}

// TestRebuiltSmallerWithinACall rebuilds the array for one counter of a call such that it no longer has the slot in which the next
// counter of the call was found.
func TestRebuiltSmallerWithinACall(t *testing.T) {
	t.Parallel()
	at := func(n int) *key { return &key{counter: headgate.Counter(n), hash: uint32(n) << 20} }
	const first, last = 0, 4_095
	m := table{budget: newBudget(10_000, 1), share: 10_000}
	m.keep(at(last), -1, &headgate.State{Used: 1, Expires: 100}, 0)
	n := first
	for ; n < 1_000 || m.used < len(m.slots)*4/5; n++ {
		expires := int64(10)
		if n < sweepSlots {
			expires = 100
		}
		m.keep(at(n), -1, &headgate.State{Used: 1, Expires: expires}, 0)
	}
	m.cursor = 0 // no entry expires there, so that the next insert finds the table full

	before := len(m.slots)
	var state headgate.State
	i := m.load(at(last), &state)
	m.keep(at(n), -1, &headgate.State{Used: 1, Expires: 100}, 10)
	if after := len(m.slots); i < after || after >= before {
		t.Fatalf("%d slots became %d; the counter was in slot %d", before, after, i)
	}
	state.Used = 2
	m.keep(at(last), i, &state, 10)
	if i = m.load(at(last), &state); i < 0 || state.Used != 2 || m.used != sweepSlots+2 {
		t.Errorf("found in slot %d: %+v; %d entries, want %d", i, state, m.used, sweepSlots+2)
	}
}

// tableModel is a table and its expected content.
type tableModel struct {
	table   table
	held    map[key]headgate.State
	evicted int64
	rand    *rand.Rand
	keys    []key
	now     int64
}

func newTableModel(seed uint64) *tableModel {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &tableModel{held: map[key]headgate.State{}, rand: r, now: 1_000}
	capacity := 1 + r.IntN(40)
	m.table = table{budget: newBudget(capacity, 1), share: capacity}
	homes := []uint32{0, 1 << 30, 1 << 31, 1<<32 - 1} // entries of the last one wrap around
	for n := range 1 + r.IntN(3*capacity) {
		k := key{counter: headgate.Counter(n % 3), hash: homes[r.IntN(len(homes))] + r.Uint32N(3)<<20}
		k.subject[n%16] = byte(n)
		m.keys = append(m.keys, k)
	}
	return m
}

// step simulates one call to Store.Take: it loads a few counters and writes them back, charged, unchanged or expired.
func (m *tableModel) step() {
	switch m.rand.IntN(50) {
	case 0:
		m.now += 40 // most expire
	case 1, 2, 3, 4:
		m.now += m.rand.Int64N(20)
	}
	m.rand.Shuffle(len(m.keys), func(i, j int) { m.keys[i], m.keys[j] = m.keys[j], m.keys[i] })
	keys := m.keys[:min(len(m.keys), 1+m.rand.IntN(4))]
	found := make([]int, len(keys))
	states := make([]headgate.State, len(keys))
	for i := range keys {
		found[i] = m.table.load(&keys[i], &states[i])
	}
	for i := range keys {
		switch m.rand.IntN(10) {
		case 0:
			states[i].Expires = m.now
		case 1, 2:
		default:
			m.charge(&states[i])
		}
		m.table.keep(&keys[i], found[i], &states[i], m.now)
		m.forget(states[i].Expires > m.now, keys[i])
		if states[i].Expires > m.now {
			m.held[keys[i]] = states[i]
		}
	}
}

func (m *tableModel) charge(s *headgate.State) {
	s.Time, s.Used, s.Prev = m.rand.Int64(), m.rand.Int64(), m.rand.Int64()
	s.Expires = max(s.Expires, m.now+1+m.rand.Int64N(50))
	s.Log, s.LastHold, s.Credited = nil, m.rand.Int64N(2), m.rand.Int64N(2)
	s.Holders = nil
	if m.rand.IntN(3) == 0 { // a counter has one or the other
		s.LastHold, s.Credited = 0, 0
		s.Holders = make([]headgate.SlotHolder, 1+m.rand.IntN(2))
		s.Holders[0].ID = m.rand.Uint64()
		return
	}
	for range m.rand.IntN(3) {
		s.Log = append(s.Log, headgate.LogEntry{Time: m.rand.Int64(), Units: 1})
	}
}

// forget removes from the model what the table dropped while it kept one counter: expired entries, that counter itself if it was
// not to be kept, and any other entry only as a counted eviction.
func (m *tableModel) forget(kept bool, own key) {
	for k, state := range m.held {
		if m.table.find(&k) >= 0 {
			continue
		}
		if state.Expires > m.now && (kept || k != own) {
			m.evicted++
		}
		delete(m.held, k)
	}
}

// compare returns how the table differs from the model, or "".
func (m *tableModel) compare() string {
	t := &m.table
	used, logged, shared, soonest := 0, 0, 0, int64(math.MaxInt64)
	for i := range t.slots {
		s := &t.slots[i]
		if s.empty() {
			continue
		}
		used++
		soonest = min(soonest, s.expires)
		k := key{subject: s.subject, counter: s.counter, hash: s.hash}
		var state headgate.State
		if at := t.load(&k, &state); at != i {
			return fmt.Sprintf("the entry of slot %d is found at %d", i, at)
		}
		if want, ok := m.held[k]; !ok || !same(state, want) {
			return fmt.Sprintf("slot %d holds %+v, want %+v", i, state, want)
		}
		if len(state.Log) > 0 || state.LastHold > 0 || state.Credited > 0 {
			logged++
		}
		if len(state.Holders) > 0 {
			shared++
		}
	}
	logs := 0
	for _, log := range t.logs.all {
		if !log.empty() {
			logs++
		}
	}
	switch {
	case used != len(m.held):
		return fmt.Sprintf("%d slots are in use, want %d", used, len(m.held))
	case used != t.used:
		return fmt.Sprintf("%d slots are in use and counted as %d", used, t.used)
	case int64(used) > t.budget.capacity || int64(used) != t.budget.used.Load():
		return fmt.Sprintf("%d entries, counted as %d, of %d allowed", used, t.budget.used.Load(), t.budget.capacity)
	case soonest < t.budget.due[0].Load() || t.budget.due[0].Load() < t.budget.soonest.Load():
		return fmt.Sprintf("one expires at %d, and not before %d and %d", soonest, t.budget.due[0].Load(), t.budget.soonest.Load())
	case t.evicted != m.evicted:
		return fmt.Sprintf("%d evictions, counted as %d", m.evicted, t.evicted)
	case logs != logged || logs+len(t.logs.free) != len(t.logs.all):
		return fmt.Sprintf("%d logs in use and %d free of %d, want %d in use", logs, len(t.logs.free), len(t.logs.all), logged)
	case shared+len(t.holders.free) != len(t.holders.all):
		return fmt.Sprintf("%d of %d free, want %d in use", len(t.holders.free), len(t.holders.all), shared)
	}
	return ""
}

func same(a, b headgate.State) bool {
	return a.Time == b.Time && a.Used == b.Used && a.Prev == b.Prev && a.Expires == b.Expires && slices.Equal(a.Log, b.Log) &&
		slices.Equal(a.Holders, b.Holders) && a.LastHold == b.LastHold && a.Credited == b.Credited
}
