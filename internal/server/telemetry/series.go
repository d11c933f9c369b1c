package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// table maps names to values. A lookup allocates nothing, and takes no lock once the name was looked up several times.
type table[V any] struct {
	names *names
	build func(name string) V
	known atomic.Pointer[map[string]V]

	mu     sync.Mutex
	all    map[string]V
	missed int // lookups in all since known was copied
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
	// known is a copy of all. It is renewed after as many misses as make up for the cost of the copy.
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

// Bounds of labels. Rules are named by operators, tiers by callers.
const (
	maxRules  = 1_000
	maxTiers  = 100
	maxSeries = 10_000 // of rules by tier
	maxLength = 256
	other     = "other"
)

// names is the bounded set of values of a label, which several metrics may share.
type names struct {
	mu    sync.Mutex
	known map[string]string
	limit int
}

func newNames(limit int) *names { return &names{known: map[string]string{}, limit: limit} }

// admit returns the name, or "other" if there are too many names or the name is not a valid label value.
func (n *names) admit(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if kept, ok := n.known[name]; ok {
		return kept
	}
	if len(n.known) >= n.limit || len(name) > maxLength || !utf8.ValidString(name) {
		return other
	}
	name = strings.Clone(name) // so that the text it was cut from can be freed
	n.known[name] = name
	return name
}
