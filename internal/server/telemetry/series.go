package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// table has a value for each name. Finding one allocates nothing, and takes no lock once it has been found often.
type table[V any] struct {
	names *names
	build func(name string) V
	known atomic.Pointer[map[string]V]

	mu     sync.Mutex
	all    map[string]V
	missed int // how often all was looked at
}

func newTable[V any](admitted *names, build func(name string) V) *table[V] {
	t := &table[V]{names: admitted, build: build, all: map[string]V{}}
	t.known.Store(&map[string]V{})
	return t
}

func (t *table[V]) of(name string) V {
	if v, ok := (*t.known.Load())[name]; ok {
		return v
	}
	return t.find(name)
}

func (t *table[V]) find(name string) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	// What is known is a copy, made as often as it pays.
	if t.missed++; len(t.all) > len(*t.known.Load()) && t.missed > len(t.all)/8 {
		known := maps.Clone(t.all)
		t.known.Store(&known)
		t.missed = 0
	}
	name = t.names.admit(name)
	v, ok := t.all[name]
	if !ok {
		v = t.build(name)
		t.all[name] = v
	}
	return v
}

// Bounds of labels. Rules are named by operators, tiers by whoever asks.
const (
	maxRules  = 1_000
	maxTiers  = 100
	maxSeries = 10_000 // of rules by tier
	maxLength = 256
	other     = "other"
)

// names are the values of a label, of which there are only so many. Several metrics may have it.
type names struct {
	mu    sync.Mutex
	known map[string]string
	most  int
}

func newNames(most int) *names { return &names{known: map[string]string{}, most: most} }

// admit is a name, or "other" if there are too many or it cannot be shown.
func (n *names) admit(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if kept, ok := n.known[name]; ok {
		return kept
	}
	if len(n.known) >= n.most || len(name) > maxLength || !utf8.ValidString(name) {
		return other
	}
	name = strings.Clone(name) // what it was cut from need not stay
	n.known[name] = name
	return name
}
