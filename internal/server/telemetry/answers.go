package telemetry

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// mostRules is of how many rules an answer has room for what they said.
	mostRules = 4
	// places is how many answers are counted as a whole at a time.
	places = 1 << 12
)

// answer is all that is counted of one decision: what was said, and by which rules.
type answer struct {
	decided
	rules [mostRules]said
	count int
}

// near is a number that is the same for the same answers, and mostly another for others.
func (a *answer) near() uint {
	n := ends(a.tier) + 71*uint(a.call) + 19*uint(a.result) + uint(a.path)
	for i := range a.rules[:a.count] {
		s := &a.rules[i]
		n = 31*n + ends(s.rule) + 19*uint(s.result) + uint(s.path)
	}
	return n
}

// ends is a number for a name, of a few of its bytes: those that differ most between names.
func ends(name string) uint {
	n := uint(len(name))
	if n == 0 {
		return 0
	}
	h := n + 7*uint(name[n-1])
	if n > 2 {
		h += 31*uint(name[n-2]) + 131*uint(name[n-3])
	}
	return h + 61*uint(name[n/2])
}

func (a *answer) is(b *answer) bool {
	if a.count != b.count || a.decided != b.decided {
		return false
	}
	for i := range a.rules[:a.count] {
		if a.rules[i] != b.rules[i] {
			return false
		}
	}
	return true
}

// answers count those that are frequent as a whole: one number for an answer, instead of one for each of its rules and one
// more. Now and then they are added to the series.
type answers struct {
	places   [places]atomic.Pointer[times]
	sweeping sync.Mutex
}

// times is how often an answer was given, since they were last added to the series.
type times struct {
	answer
	given atomic.Int64
}

// gone is how often an answer was given that has left its place. Nobody counts up from there to 0.
const gone = math.MinInt64

// count is false if there is no place for an answer, which is then not counted. Nothing of the request is kept.
func (all *answers) count(a *answer) bool {
	place := &all.places[a.near()%places]
	t := place.Load()
	if t == nil {
		if len(a.tier) > maxLength {
			return false
		}
		t = &times{answer: *a}
		t.tier = strings.Clone(a.tier)
		if !place.CompareAndSwap(nil, t) {
			return false
		}
	}
	return t.is(a) && t.given.Add(1) > 0
}

// sweep adds what was counted to the series, and makes place: of answers that were not given since the last time.
func (all *answers) sweep(add func(*answer, int64)) {
	all.sweeping.Lock()
	defer all.sweeping.Unlock()
	for i := range all.places {
		t := all.places[i].Load()
		if t == nil {
			continue
		}
		if n := t.given.Swap(0); n > 0 {
			add(&t.answer, n)
		} else if t.given.CompareAndSwap(0, gone) {
			all.places[i].Store(nil)
		}
	}
}
