// Package offenders tracks, in bounded memory, the subjects that each rule denies most often and those nearest to a limit, on
// this node; and merges the data of several nodes.
//
// It covers up to ten minutes, and is exact as long as a rule denies few subjects; results contain their error bounds. It
// does not communicate with other nodes, and stores attributes of subjects only if they may be shown.
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

// maxBytes is the approximate maximum memory of all rules together. A rule takes up to 1 MB, and half a kilobyte if it denies
// few subjects.
const maxBytes = 32 << 20

// Options configures Offenders.
type Options struct {
	// Rules returns the rules in use, which determine the attributes of a subject. It is only called if Clear is set.
	Rules func() *headgate.RuleSet
	// Clear allows results to contain the attributes of subjects. If it is false, attributes are not stored.
	Clear bool
}

// Offenders tracks decisions. It is safe for concurrent use.
type Offenders struct {
	options  Options
	now      func() time.Time // set in tests only
	maxBytes int64

	mu    sync.RWMutex
	rules map[string]*rule
	// recent caches the last used rules, so that a flood of denials by one rule does not contend for mu.
	recent [recentSize]atomic.Pointer[rule]
	bytes  atomic.Int64
	// lost is the last minute of which data was evicted. evicting is held during an eviction.
	lost     atomic.Int64
	evicting sync.Mutex
}

// New returns Offenders without data. Pass decisions to Observe.
func New(options Options) *Offenders {
	return &Offenders{options: options, maxBytes: maxBytes, rules: map[string]*rule{}}
}

func (o *Offenders) timeOf(ob *headgate.Observation) time.Time {
	if o.now != nil {
		return o.now()
	}
	return ob.Time()
}

// Observe records a decision. Only checks and reservations count, and of these only enforced limits.
func (o *Offenders) Observe(ob *headgate.Observation) {
	if ob.Call != headgate.CallCheck && ob.Call != headgate.CallReserve {
		return
	}
	d := &ob.Decision
	if !d.Allowed {
		o.addDenied(ob)
		return
	}
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Enforced || l.Err != nil || l.Limit.Count <= 0 {
			continue
		}
		// The queue of a leaky bucket may have more remaining units than its capacity, and is then far from full.
		of := l.Limit.Capacity()
		if l.Remaining <= of/nearFrom {
			o.addNear(ob, l, of-l.Remaining, of)
		}
	}
}

// addDenied counts a denial for each rule that denies. The limits of a rule are adjacent.
func (o *Offenders) addDenied(ob *headgate.Observation) {
	now, last := o.timeOf(ob), ""
	for i := range ob.Decision.Limits {
		l := &ob.Decision.Limits[i]
		if !l.Denies() || l.Rule == last {
			continue
		}
		last = l.Rule
		r := o.lock(o.find(l.Rule), l.Rule, now)
		r.addDenied(l.Subject, func() string { return o.name(l.Rule, ob.Attributes) })
		o.unlock(r)
	}
}

func (o *Offenders) addNear(ob *headgate.Observation, l *headgate.LimitDecision, used, of int64) {
	now, share := o.timeOf(ob), shareOf(used, of)
	r := o.find(l.Rule)
	if r.belowFloor(minuteOf(now), share) {
		return
	}
	r = o.lock(r, l.Rule, now)
	r.addNear(nearest{subject: l.Subject, limit: l.Name, used: used, of: of, share: share, at: now.UnixNano()},
		func() string { return o.name(l.Rule, ob.Attributes) })
	o.unlock(r)
}

// name returns the encoded attributes of a subject of a rule, or "" if they may not be shown.
func (o *Offenders) name(rule string, a headgate.Attributes) string {
	if !o.options.Clear {
		return ""
	}
	return encodeName(o.options.Rules().SubjectAttributes(rule, a))
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

const recentSize = 64

// find returns a rule, and adds it if necessary. It may have been evicted.
func (o *Offenders) find(id string) *rule {
	if r := o.cacheSlot(id).Load(); r != nil && r.id == id {
		return r
	}
	return o.lookUp(id)
}

// cacheSlot returns the slot of a rule in the cache, which may contain another rule.
func (o *Offenders) cacheSlot(id string) *atomic.Pointer[rule] {
	n := len(id)
	if n == 0 {
		return &o.recent[0]
	}
	return &o.recent[(n+int(id[n-1])+7*int(id[n/2]))%recentSize]
}

// lookUp returns a rule from the map, and adds it if necessary.
func (o *Offenders) lookUp(id string) *rule {
	o.mu.RLock()
	r := o.rules[id]
	o.mu.RUnlock()
	if r == nil {
		r = o.add(id)
	}
	o.cacheSlot(id).Store(r)
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

// lock locks the rule and advances it to the current minute. If r was evicted in the meantime, it locks a new rule instead.
func (o *Offenders) lock(r *rule, id string, now time.Time) *rule {
	for {
		r.mu.Lock()
		if !r.evicted {
			r.last = now.UnixNano()
			r.turn(minuteOf(now))
			return r
		}
		r.mu.Unlock()
		r = o.lookUp(id)
	}
}

// unlock unlocks the rule, and evicts other rules if the memory limit is exceeded.
func (o *Offenders) unlock(r *rule) {
	grown := r.size() - r.bytes
	r.bytes += grown
	r.mu.Unlock()
	if grown != 0 && o.bytes.Add(grown) > o.maxBytes && o.evicting.TryLock() {
		o.evict()
		o.evicting.Unlock()
	}
}

// evict removes the rules that were not used for the longest time until an eighth of the memory is free, so that it runs rarely.
func (o *Offenders) evict() {
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
		if o.bytes.Load() <= o.maxBytes/8*7 {
			return
		}
		o.mu.Lock()
		q.rule.mu.Lock()
		delete(o.rules, q.id)
		q.rule.evicted = true
		o.bytes.Add(-q.rule.bytes)
		o.lost.Store(max(o.lost.Load(), q.rule.minute))
		q.rule.mu.Unlock()
		o.mu.Unlock()
		o.cacheSlot(q.id).CompareAndSwap(q.rule, nil)
	}
}

// all returns all rules, or only the given one.
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

// Result returns the data of this node. It has more rows than requested, and is meant for Merge.
func (o *Offenders) Result(q Query) Result {
	first := minuteOf(o.timeOf(&headgate.Observation{})) - q.minutes() + 1
	a := Result{Header: fanout.Header{Version: version, Nodes: 1}, Incomplete: o.lost.Load() >= first}
	rules := map[string]*ruleData{}
	for id, r := range o.all(q.Rule) {
		r.mu.Lock()
		rules[id] = r.window(first)
		r.mu.Unlock()
	}
	a.fill(rules, wider*q.limit())
	return a
}
