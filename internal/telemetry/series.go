package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// series are the counters of one metric, by their labels. Finding one takes no lock and no memory.
type series[K comparable] struct {
	known atomic.Pointer[map[K]prometheus.Counter]
	mu    sync.Mutex // of whoever adds one
	// admit is the labels themselves, or others if there are too many. It is not called twice at a time.
	admit func(K) K
	build func(K) prometheus.Counter
}

func newSeries[K comparable](admit func(K) K, build func(K) prometheus.Counter) *series[K] {
	s := &series[K]{admit: admit, build: build}
	s.known.Store(&map[K]prometheus.Counter{})
	return s
}

func (s *series[K]) of(labels K) prometheus.Counter {
	if c, ok := (*s.known.Load())[labels]; ok {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	labels = s.admit(labels)
	known := *s.known.Load()
	if c, ok := known[labels]; ok {
		return c
	}
	c := s.build(labels)
	known = maps.Clone(known)
	known[labels] = c
	s.known.Store(&known)
	return c
}

// Bounds of labels. Rules are named by operators, tiers by whoever asks.
const (
	maxRules  = 1_000
	maxTiers  = 100
	maxLength = 256
	other     = "other"
)

// names are the values of a label, of which there are only so many.
type names struct {
	known map[string]string
	most  int
}

func newNames(most int) *names { return &names{known: map[string]string{}, most: most} }

// admit is a name, or "other" if there are too many or it cannot be shown.
func (n *names) admit(name string) string {
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
