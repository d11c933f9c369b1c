package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// series are the counters of one metric, by their labels. Finding one takes no memory, and no lock once it is known well.
type series[K comparable] struct {
	known atomic.Pointer[map[K]prometheus.Counter]
	// admit is the labels themselves, or others if there are too many.
	admit func(K) K
	build func(K) prometheus.Counter
	// most is how many there may be, if not 0; the others are counted as rest says, which has few values.
	most int
	rest func(K) K

	mu     sync.Mutex
	all    map[K]prometheus.Counter
	missed int // how often somebody looked in all
}

func newSeries[K comparable](admit func(K) K, build func(K) prometheus.Counter) *series[K] {
	s := &series[K]{admit: admit, build: build, all: map[K]prometheus.Counter{}}
	s.known.Store(&map[K]prometheus.Counter{})
	return s
}

// of is the counter with these labels.
func (s *series[K]) of(labels K) prometheus.Counter {
	if c, ok := (*s.known.Load())[labels]; ok {
		return c
	}
	return s.find(labels)
}

// find is a counter that is not known well.
func (s *series[K]) find(labels K) prometheus.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What is known is a copy, made as often as it pays.
	if s.missed++; len(s.all) > len(*s.known.Load()) && s.missed > len(s.all)/8 {
		known := maps.Clone(s.all)
		s.known.Store(&known)
		s.missed = 0
	}
	labels = s.admit(labels)
	if _, ok := s.all[labels]; !ok && s.most > 0 && len(s.all) >= s.most {
		labels = s.rest(labels)
	}
	c, ok := s.all[labels]
	if !ok {
		c = s.build(labels)
		s.all[labels] = c
	}
	return c
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
