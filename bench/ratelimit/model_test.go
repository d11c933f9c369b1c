package ratelimit

import (
	"fmt"
	"math"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The rows of the table. Each is a switch of the model.
const (
	deniedNotCharged = "denied-not-charged"
	zeroHits         = "zero-hits"
	negativeHits     = "negative-hits"
	zeroLimit        = "zero-limit"
	unlimited        = "unlimited"
	unusedReset      = "unused-reset"
	keysApart        = "keys-apart"
	callerLimit      = "caller-limit"
	replaces         = "replaces"
	quotaMode        = "quota-mode"
	bounded          = "bounded"
	notImported      = "not-imported"
)

// known are all of them.
var known = []string{
	deniedNotCharged, zeroHits, negativeHits, zeroLimit, unlimited, unusedReset, keysApart, callerLimit, replaces,
	quotaMode, bounded, notImported,
}

// most is what one counter and one charge can be.
const most = 1_000_000_000

// model says what a server answers. Without switches that is envoyproxy/ratelimit; each row of the table changes it,
// and with all of them it is Headgate.
type model struct {
	on   map[string]bool
	top  []*place
	used map[string]int64 // by counter and window
}

// answer is a response, in the part that is compared.
type answer struct {
	failed   bool // there is none, but an error
	over     bool
	statuses []status
}

type status struct {
	over           bool
	requests       int64 // of the current limit
	unit           string
	left, resetsAt int64
}

// ask is what a descriptor asks of a counter.
type ask struct {
	*limit
	counter        string
	hits           int64
	credit         bool
	shadow, quota  bool
	start          int64 // of the window
	judged, denied bool
	need           int64 // that must fit
	used           int64 // afterwards
}

// answer decides about a request at a time.
func (m *model) answer(r *rlsv3.RateLimitRequest, now int64) answer {
	asks := make([]*ask, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		hits := int64(max(1, r.GetHitsAddend()))
		if d.GetHitsAddend() != nil {
			hits = int64(d.GetHitsAddend().GetValue())
		}
		if m.on[bounded] && (hits > most && len(d.GetEntries()) > 0 || len(asks) > 64) {
			return answer{failed: true}
		}
		asks[i] = m.find(r.GetDomain(), d, now)
		asks[i].hits, asks[i].credit = hits, m.on[negativeHits] && d.GetIsNegativeHits() && hits > 0
	}
	if !m.on[replaces] {
		replace(asks)
	}
	m.charge(asks)
	a := answer{statuses: make([]status, len(asks))}
	for i, k := range asks {
		a.statuses[i] = m.status(k)
		a.over = a.over || a.statuses[i].over
	}
	return a
}

// find is the limit of a descriptor, and its counter at a time.
func (m *model) find(domain string, d *ratelimitv3.RateLimitDescriptor, now int64) *ask {
	p, values := m.way(d.GetEntries())
	if l := d.GetLimit(); l != nil && !m.on[callerLimit] {
		p, values = &place{limit: &limit{requests: int64(l.GetRequestsPerUnit()), unit: l.GetUnit().String()}}, nil
		p.limit.seconds = seconds[p.limit.unit]
	}
	if p == nil || p.limit == nil {
		return &ask{}
	}
	k := &ask{limit: p.limit, shadow: p.shadow, quota: p.quota, counter: domain}
	for i, e := range d.GetEntries() {
		value := e.GetValue()
		if values != nil {
			value = values[i]
		}
		if m.on[keysApart] {
			k.counter += fmt.Sprintf("%q%q", e.GetKey(), value)
		} else {
			k.counter += "_" + e.GetKey() + "_" + value
		}
	}
	if !k.unlimited {
		k.start = now / k.seconds * k.seconds
		k.counter += fmt.Sprintf("_%d", k.start)
	}
	return k
}

// way is how entries go through the config: to which place, and by which values they are counted. A shared one is that
// of the config.
func (m *model) way(entries []*ratelimitv3.RateLimitDescriptor_Entry) (p *place, values []string) {
	level := m.top
	for _, e := range entries {
		if p = m.next(level, e); p == nil {
			return nil, nil
		}
		value := e.GetValue()
		if p.shares {
			value = strings.TrimPrefix(p.name(), e.GetKey()+"_")
		}
		values, level = append(values, value), p.below
	}
	return p, values
}

// next is the place with the name, else the first that is for all names with its beginning, else the one with the key.
func (m *model) next(level []*place, e *ratelimitv3.RateLimitDescriptor_Entry) *place {
	name := e.GetKey() + "_" + e.GetValue()
	var wild, only *place
	for _, p := range level {
		prefix, isWild := p.wild()
		switch {
		case m.on[notImported] && p.left:
		case m.on[keysApart] && p.key != e.GetKey() && (!isWild || p.value != ""):
		case p.name() == name:
			return p
		case isWild && strings.HasPrefix(name, prefix):
			if wild == nil {
				wild = p
			}
		case p.name() == e.GetKey():
			only = p
		}
	}
	if wild != nil {
		return wild
	}
	return only
}

// replace takes away the limits that others replace.
func replace(asks []*ask) {
	replaced := map[string]bool{}
	for _, k := range asks {
		if k.limit != nil {
			for _, name := range k.replaces {
				replaced[name] = true
			}
		}
	}
	for i, k := range asks {
		if k.limit != nil && !k.unlimited && replaced[k.name] {
			asks[i] = &ask{}
		}
	}
}

// size is what the limit amounts to.
func (m *model) size(l *limit) int64 {
	if m.on[bounded] {
		return min(l.requests, most)
	}
	return l.requests
}

// never is whether the ask is denied by itself.
func (m *model) never(k *ask) bool { return m.on[zeroLimit] && k.requests == 0 }

// charge judges what is asked, one after the other, and counts it.
func (m *model) charge(asks []*ask) {
	var counted []*ask
	denied := false
	for _, k := range asks {
		if k.limit == nil || k.unlimited {
			continue
		}
		k.need = k.hits
		if m.on[zeroHits] {
			k.need = max(1, k.need)
		}
		if m.never(k) {
			k.denied = !k.credit
			denied = denied || k.enforced()
			continue
		}
		counted = append(counted, k)
	}
	if denied { // the others are only looked at
		for _, k := range counted {
			if !k.credit {
				k.need, k.hits = 1, 0
			}
		}
	}
	before := map[string]int64{}
	for _, k := range counted {
		before[k.counter] = m.used[k.counter]
	}
	for _, k := range counted {
		m.take(k, !m.on[deniedNotCharged] || m.used[k.counter]+k.need <= m.size(k.limit))
		denied = denied || k.enforced()
	}
	if m.on[deniedNotCharged] && denied {
		for counter, used := range before {
			m.used[counter] = used
		}
		for _, k := range counted {
			m.take(k, false)
		}
	}
}

// enforced is whether the ask is denied, and that matters.
func (k *ask) enforced() bool { return k.denied && !k.shadow && !k.quota }

// take judges an ask, unless that is done, and counts it. A credit counts always.
func (m *model) take(k *ask, count bool) {
	size := m.size(k.limit)
	if !k.judged {
		k.judged, k.denied = true, !k.credit && m.used[k.counter]+k.need > size
	}
	switch {
	case k.credit:
		m.used[k.counter] = max(0, m.used[k.counter]-k.hits)
	case count:
		m.used[k.counter] += k.hits
	}
	k.used = m.used[k.counter]
}

func (m *model) status(k *ask) status {
	switch {
	case k.limit == nil || k.unlimited && m.on[unlimited]:
		return status{}
	case k.unlimited:
		return status{left: math.MaxUint32}
	case m.never(k) && k.enforced():
		return status{over: true, requests: 1, unit: "SECOND"}
	case m.never(k):
		return status{}
	}
	size := m.size(k.limit)
	s := status{k.enforced(), size, k.unit, max(0, size-k.used), k.start + k.seconds}
	unused := k.used == 0 && (!k.denied || k.need > size) // what fits later is denied until then
	if k.enforced() && m.on[deniedNotCharged] {
		s.left = 0
	}
	overQuota := k.denied && k.quota && !k.shadow
	if unused && m.on[unusedReset] || overQuota && !m.on[quotaMode] {
		s.resetsAt = 0
	}
	return s
}
