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
	// KeptMinutes is how many minutes are known, the present one included.
	KeptMinutes = 10
	// maxNear is how many subjects of a rule that came near a limit are kept of a minute.
	maxNear = 64
	// nearFrom is what part of a limit may be left for it to count as near: a fifth.
	nearFrom = 5
	// whole is the share of a limit that is used up, in millionths.
	whole = 1_000_000
	// maxNames is how many bytes the names of a rule's subjects may have. A new minute begins with half of them at most.
	maxNames = 256 << 10
)

// rule is what is known of one rule. Its mutex is for all of it but the floor.
type rule struct {
	id string
	mu sync.Mutex
	// gone says that it was let go, and must be looked for again.
	gone bool
	// minute is the present one, since 1970; sketch and near are of it.
	minute int64
	sketch sketch
	near   []nearest
	// floor is how near one must come to be among the nearest, and the minute in which that holds, below and above the 32nd bit.
	floor atomic.Uint64
	// past is other minutes, the oldest first. What is in them never changes.
	past []past
	// names is how many bytes those in near and past have, pastBytes how many past has besides, and bytes all of the rule, as far as
	// it is in the total.
	names, pastBytes int
	bytes            int64
	// last is when it was heard of, in nanoseconds since 1970.
	last int64
}

// past is a minute that is over.
type past struct {
	minute int64
	list   list
	near   []nearest
	names  int
}

// nearest is how near a subject came to a limit.
type nearest struct {
	subject         headgate.Subject
	limit           string
	used, of, share int64
	at              int64 // nanoseconds since 1970
	name            string
}

// shareOf is used ÷ of in millionths.
func shareOf(used, of int64) int64 { return used * whole / of }

// nearestOf is each subject once, where it was nearest.
func nearestOf(all []nearest) map[headgate.Subject]nearest {
	best := make(map[headgate.Subject]nearest, len(all))
	for i := range all {
		n := all[i]
		before, is := best[n.subject]
		if is && before.share >= n.share {
			n, before = before, n
		}
		n.name = cmp.Or(n.name, before.name)
		best[n.subject] = n
	}
	return best
}

// turn begins another minute, if it is one. A clock that is a little behind is in the present one.
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

// present is the minute as if it were over.
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

// denied counts a denial. The name is asked for once somebody is seen again.
func (r *rule) denied(subject headgate.Subject, name func() string) {
	e := r.sketch.add(subject)
	hits := e.denied - e.err
	if hits == 1 {
		r.leaveNear(subject)
	}
	// Who had no name, because there was no room for one, is asked again now and then.
	if hits > 1 && hits&(hits-1) == 0 && e.name == "" && r.names+r.sketch.names < maxNames {
		e.name = name()
		r.sketch.names += len(e.name)
	}
}

// tooFar is true if one who came so near is not among the nearest of the minute, as far as is known without the mutex.
func (r *rule) tooFar(minute, share int64) bool {
	floor := r.floor.Load()
	return floor>>32 == uint64(minute) && uint64(share) <= floor&(1<<32-1)
}

// came notes how near a subject came to a limit. Of two that came equally near the first stays.
func (r *rule) came(n nearest, name func() string) {
	if r.sketch.has(n.subject) {
		return
	}
	least := 0
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
		if old.share < r.near[least].share {
			least = i
		}
	}
	if len(r.near) < maxNear {
		r.near, least = append(r.near, nearest{}), len(r.near)
	} else if n.share <= r.near[least].share {
		return
	}
	r.names -= len(r.near[least].name)
	if r.names+r.sketch.names < maxNames {
		n.name = name()
		r.names += len(n.name)
	}
	r.near[least] = n
	r.setFloor()
}

// leaveNear is for a subject that is denied. Who had to make room for it does not come back.
func (r *rule) leaveNear(subject headgate.Subject) {
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
	least := int64(0)
	if len(r.near) == maxNear {
		least = whole
		for i := range r.near {
			least = min(least, r.near[i].share)
		}
	}
	r.floor.Store(uint64(r.minute)<<32 | uint64(least))
}

// window is what is known of the minutes from first on.
func (r *rule) window(first int64) *known {
	k := &known{}
	for _, p := range append(slices.Clip(r.past), r.present()) {
		if p.minute >= first {
			k.lists = append(k.lists, p.list)
			k.near = append(k.near, p.near...)
		}
	}
	return k
}

// size is about how many bytes a rule takes.
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
	// ruleBytes is what a rule takes at least, its place in a map included.
	ruleBytes = int(unsafe.Sizeof(rule{})) + 256
)
