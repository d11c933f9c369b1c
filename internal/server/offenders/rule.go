package offenders

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/headgate/headgate"
)

const (
	// KeptMinutes is the number of stored minutes, including the current one.
	KeptMinutes = 10
	// maxNear is the maximum number of near subjects of a rule that are stored per minute.
	maxNear = 64
	// nearFrom is the divisor of a limit's capacity: a subject is near if at most a fifth is remaining.
	nearFrom = 5
	// whole is the share of a used-up limit in millionths.
	whole = 1_000_000
	// maxNames is the maximum size of the encoded attributes of a rule's subjects. A new minute begins with at most half of it.
	maxNames = 256 << 10
)

// rule contains the data of one rule. mu guards all fields except floor.
type rule struct {
	id string
	mu sync.Mutex
	// evicted reports that the rule was removed and must be looked up again.
	evicted bool
	// minute is the current minute since 1970, to which sketch and near belong.
	minute int64
	sketch sketch
	near   []nearest
	// floor contains the lowest share among the maxNear nearest subjects in the lower 32 bits, and the minute for which it is
	// valid in the upper.
	floor atomic.Uint64
	// past contains the previous minutes, oldest first. They are immutable.
	past []past
	// names is the size of the encoded attributes in near and past, pastBytes the other memory of past, and bytes the memory
	// of the rule that is included in the total.
	names, pastBytes int
	bytes            int64
	// last is the time of the last use in nanoseconds since 1970.
	last int64
}

// past contains the data of a previous minute.
type past struct {
	minute int64
	list   list
	near   []nearest
	names  int
}

// nearest describes how near a subject came to a limit.
type nearest struct {
	subject         headgate.Subject
	limit           string
	used, of, share int64
	at              int64 // nanoseconds since 1970
	name            string
}

// shareOf returns used ÷ of in millionths.
func shareOf(used, of int64) int64 { return used * whole / of }

// nearestOf returns each subject once, at its nearest point.
func nearestOf(all []nearest) map[headgate.Subject]nearest {
	best := make(map[headgate.Subject]nearest, len(all))
	for i := range all {
		n := all[i]
		before, found := best[n.subject]
		if found && before.share >= n.share {
			n, before = before, n
		}
		n.name = cmp.Or(n.name, before.name)
		best[n.subject] = n
	}
	return best
}

// turn begins a new minute if necessary. A clock that is slightly behind still uses the current one.
func (r *rule) turn(minute int64) {
	if back := r.minute - minute; back >= 0 && back < KeptMinutes {
		return
	}
	kept := make([]past, 0, len(r.past)+1)
	for _, p := range append(slices.Clip(r.past), r.present()) {
		if p.minute > minute-KeptMinutes && p.minute < minute && len(p.list.tallies)+len(p.near) > 0 {
			kept = append(kept, p)
		}
	}
	r.minute, r.sketch, r.near, r.past, r.names, r.pastBytes = minute, sketch{}, nil, kept, 0, 0
	for i := len(kept) - 1; i >= 0; i-- {
		if r.names+kept[i].names > maxNames/2 {
			kept[i] = kept[i].nameless()
		}
		r.names += kept[i].names
		r.pastBytes += pastBytes + cap(kept[i].list.tallies)*tallyBytes + cap(kept[i].near)*nearBytes
	}
}

// present returns the data of the current minute.
func (r *rule) present() past {
	p := past{minute: r.minute, list: r.sketch.best(), near: slices.Clone(r.near)}
	for i := range p.list.tallies {
		p.names += len(p.list.tallies[i].name)
	}
	for i := range p.near {
		p.names += len(p.near[i].name)
	}
	return p
}

func (p past) nameless() past {
	p.list.tallies, p.near, p.names = slices.Clone(p.list.tallies), slices.Clone(p.near), 0
	for i := range p.list.tallies {
		p.list.tallies[i].name = ""
	}
	for i := range p.near {
		p.near[i].name = ""
	}
	return p
}

// addDenied counts a denial. It calls name only for a subject that is denied repeatedly.
func (r *rule) addDenied(subject headgate.Subject, name func() string) {
	e := r.sketch.add(subject)
	hits := e.denied - e.err
	if hits == 1 {
		r.removeNear(subject)
	}
	// A subject without a name, because there was no space for it, gets another chance at every power of two.
	if hits > 1 && hits&(hits-1) == 0 && e.name == "" && r.names+r.sketch.names < maxNames {
		e.name = name()
		r.sketch.names += len(e.name)
	}
}

// belowFloor reports, without the mutex, whether a subject with this share is not among the nearest of the minute.
func (r *rule) belowFloor(minute, share int64) bool {
	floor := r.floor.Load()
	return floor>>32 == uint64(minute) && uint64(share) <= floor&(1<<32-1)
}

// addNear records how near a subject came to a limit. If two subjects are equally near, the first one stays.
func (r *rule) addNear(n nearest, name func() string) {
	if r.sketch.has(n.subject) {
		return
	}
	lowest := 0
	for i := range r.near {
		old := &r.near[i]
		if old.subject == n.subject {
			if n.share > old.share {
				n.name = old.name
				*old = n
				r.setFloor()
			}
			return
		}
		if old.share < r.near[lowest].share {
			lowest = i
		}
	}
	if len(r.near) < maxNear {
		r.near, lowest = append(r.near, nearest{}), len(r.near)
	} else if n.share <= r.near[lowest].share {
		return
	}
	r.names -= len(r.near[lowest].name)
	if r.names+r.sketch.names < maxNames {
		n.name = name()
		r.names += len(n.name)
	}
	r.near[lowest] = n
	r.setFloor()
}

// removeNear removes a subject that is denied. Subjects that were evicted for it do not return.
func (r *rule) removeNear(subject headgate.Subject) {
	for i := range r.near {
		if r.near[i].subject == subject {
			r.names -= len(r.near[i].name)
			r.near = slices.Delete(r.near, i, i+1)
			r.setFloor()
			return
		}
	}
}

func (r *rule) setFloor() {
	lowest := int64(0)
	if len(r.near) == maxNear {
		lowest = whole
		for i := range r.near {
			lowest = min(lowest, r.near[i].share)
		}
	}
	r.floor.Store(uint64(r.minute)<<32 | uint64(lowest))
}

// window returns the data since the minute first.
func (r *rule) window(first int64) *ruleData {
	k := &ruleData{}
	for _, p := range append(slices.Clip(r.past), r.present()) {
		if p.minute >= first {
			k.lists = append(k.lists, p.list)
			k.near = append(k.near, p.near...)
		}
	}
	return k
}

// size returns the approximate memory of a rule in bytes.
func (r *rule) size() int64 {
	n := ruleBytes + r.names + r.pastBytes + cap(r.near)*nearBytes +
		r.sketch.names + cap(r.sketch.entries)*entryBytes + (len(r.sketch.slots)+len(r.sketch.heap))*4
	return int64(n)
}

const (
	entryBytes = int(unsafe.Sizeof(entry{}))
	tallyBytes = int(unsafe.Sizeof(tally{}))
	nearBytes  = int(unsafe.Sizeof(nearest{}))
	pastBytes  = int(unsafe.Sizeof(past{}))
	// ruleBytes is the minimum memory of a rule, including its map entry.
	ruleBytes = int(unsafe.Sizeof(rule{})) + 256
)
