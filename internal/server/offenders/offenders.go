// Package offenders knows who is limited most, and who is nearest to a limit, by rule, on this node and in bounded memory; and
// how to put together what several nodes know.
//
// It looks back ten minutes at most, and is exact as long as a rule denies few subjects; its answers say how far they may be
// off. It knows no other node and no HTTP, and no names unless it is told that they may be shown.
package offenders

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/fanout"
)

// maxBytes is about how much memory all rules together may take. One takes 1 MB at most, and half a kilobyte if it denies hardly
// anybody.
const maxBytes = 32 << 20

// Options of Offenders.
type Options struct {
	// Rules are those in force, which tell what a subject is. Only asked if Clear.
	Rules func() *headgate.RuleSet
	// Clear says that answers may have the attributes of subjects. If not, they are not even kept.
	Clear bool
}

// Offenders listens to decisions. It is safe for use by many goroutines.
type Offenders struct {
	options Options
	now     func() time.Time // nil but in tests
	most    int64            // bytes

	mu    sync.RWMutex
	rules map[string]*rule
	// recent has rules that were looked for last, so that a flood by one of them takes no lock of all.
	recent [recents]atomic.Pointer[rule]
	bytes  atomic.Int64
	// lost is the last minute of which something was let go, and making says that room is being made.
	lost   atomic.Int64
	making sync.Mutex
}

// New makes Offenders, who are told of decisions by Note.
func New(options Options) *Offenders {
	return &Offenders{options: options, most: maxBytes, rules: map[string]*rule{}}
}

func (o *Offenders) timeOf(seen *headgate.Observation) time.Time {
	if o.now != nil {
		return o.now()
	}
	return seen.Time()
}

// Note is told of every decision. Checks and reservations count, and of those only limits that are enforced.
func (o *Offenders) Note(seen *headgate.Observation) {
	if seen.Call != headgate.CallCheck && seen.Call != headgate.CallReserve {
		return
	}
	d := &seen.Decision
	if !d.Allowed {
		o.noteDenied(seen)
		return
	}
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Enforced || l.Err != nil || l.Limit.Count <= 0 {
			continue
		}
		// A leaky bucket's queue may have room for more than it lets pass at once, and is then far from full.
		of := l.Limit.Capacity()
		if l.Remaining <= of/nearFrom {
			o.noteNear(seen, l, of-l.Remaining, of)
		}
	}
}

// noteDenied counts each rule that denies once; its limits are neighbours.
func (o *Offenders) noteDenied(seen *headgate.Observation) {
	now, last := o.timeOf(seen), ""
	for i := range seen.Decision.Limits {
		l := &seen.Decision.Limits[i]
		if !l.Denies() || l.Rule == last {
			continue
		}
		last = l.Rule
		r := o.lock(o.find(l.Rule), l.Rule, now)
		r.denied(l.Subject, func() string { return o.name(l.Rule, seen.Attributes) })
		o.unlock(r)
	}
}

func (o *Offenders) noteNear(seen *headgate.Observation, l *headgate.LimitDecision, used, of int64) {
	now, share := o.timeOf(seen), shareOf(used, of)
	r := o.find(l.Rule)
	if r.tooFar(minuteOf(now), share) {
		return
	}
	r = o.lock(r, l.Rule, now)
	r.came(nearest{subject: l.Subject, limit: l.Name, used: used, of: of, share: share, at: now.UnixNano()},
		func() string { return o.name(l.Rule, seen.Attributes) })
	o.unlock(r)
}

// name is what a subject of a rule is, if it may be shown.
func (o *Offenders) name(rule string, a headgate.Attributes) string {
	if !o.options.Clear {
		return ""
	}
	return encodeName(o.options.Rules().SubjectAttributes(rule, a))
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

const recents = 64

// find is a rule, which is made if there is none. It may be gone.
func (o *Offenders) find(id string) *rule {
	if r := o.recently(id).Load(); r != nil && r.id == id {
		return r
	}
	return o.look(id)
}

// recently is where a rule is that was looked for last, or another.
func (o *Offenders) recently(id string) *atomic.Pointer[rule] {
	n := len(id)
	if n == 0 {
		return &o.recent[0]
	}
	return &o.recent[(n+int(id[n-1])+7*int(id[n/2]))%recents]
}

// look is find among all of them.
func (o *Offenders) look(id string) *rule {
	o.mu.RLock()
	r := o.rules[id]
	o.mu.RUnlock()
	if r == nil {
		r = o.add(id)
	}
	o.recently(id).Store(r)
	return r
}

func (o *Offenders) add(id string) *rule {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.rules[id]
	if r == nil {
		id = strings.Clone(id)
		r = &rule{id: id}
		o.rules[id] = r
	}
	return r
}

// lock is the rule that was found, locked and in the present minute; another if that was let go meanwhile.
func (o *Offenders) lock(r *rule, id string, now time.Time) *rule {
	for {
		r.mu.Lock()
		if !r.gone {
			r.last = now.UnixNano()
			r.turn(minuteOf(now))
			return r
		}
		r.mu.Unlock()
		r = o.look(id)
	}
}

// unlock undoes lock, and makes room if there is not enough.
func (o *Offenders) unlock(r *rule) {
	grown := r.size() - r.bytes
	r.bytes += grown
	r.mu.Unlock()
	if grown != 0 && o.bytes.Add(grown) > o.most && o.making.TryLock() {
		o.makeRoom()
		o.making.Unlock()
	}
}

// makeRoom lets go of rules, those that were quiet longest first, until an eighth of the room is free: so that it is seldom.
func (o *Offenders) makeRoom() {
	type quiet struct {
		id   string
		rule *rule
		last int64
	}
	var all []quiet
	for id, r := range o.all("") {
		r.mu.Lock()
		all = append(all, quiet{id, r, r.last})
		r.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b quiet) int { return cmp.Compare(a.last, b.last) })
	for _, q := range all {
		if o.bytes.Load() <= o.most/8*7 {
			return
		}
		o.mu.Lock()
		q.rule.mu.Lock()
		delete(o.rules, q.id)
		q.rule.gone = true
		o.bytes.Add(-q.rule.bytes)
		o.lost.Store(max(o.lost.Load(), q.rule.minute))
		q.rule.mu.Unlock()
		o.mu.Unlock()
		o.recently(q.id).CompareAndSwap(q.rule, nil)
	}
}

// all is every rule, or the one asked for.
func (o *Offenders) all(id string) map[string]*rule {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if id == "" {
		return maps.Clone(o.rules)
	}
	one := map[string]*rule{}
	if r := o.rules[id]; r != nil {
		one[id] = r
	}
	return one
}

// Answer is what this node knows. It has more rows than are asked for, and is meant for Merge.
func (o *Offenders) Answer(q Query) Answer {
	first := minuteOf(o.timeOf(&headgate.Observation{})) - q.minutes() + 1
	a := Answer{Header: fanout.Header{Version: version, Nodes: 1}, Incomplete: o.lost.Load() >= first}
	rules := map[string]*known{}
	for id, r := range o.all(q.Rule) {
		r.mu.Lock()
		rules[id] = r.window(first)
		r.mu.Unlock()
	}
	a.fill(rules, wider*q.most())
	return a
}
