package ratelimit

import (
	"fmt"
	"math"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The rows of the table of differences. Each is a switch of the model.
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

// modelRows lists all of them.
var modelRows = []string{
	deniedNotCharged, zeroHits, negativeHits, zeroLimit, unlimited, unusedReset, keysApart, callerLimit, replaces,
	quotaMode, bounded, notImported,
}

// maxUnits is the largest value of a counter and of a charge.
const maxUnits = 1_000_000_000

// model predicts the responses of a server. Without switches it models envoyproxy/ratelimit; each row of the table changes it,
// and with all rows it models Headgate.
type model struct {
	on   map[string]bool
	top  []*node
	used map[string]int64 // by counter and window
}

// outcome is the part of a response that is compared.
type outcome struct {
	failed   bool // an error instead of a response
	over     bool
	statuses []status
}

type status struct {
	over           bool
	requests       int64 // of the current limit
	unit           string
	left, resetsAt int64
}

// charge is the charge of a descriptor on a counter.
type charge struct {
	*limit
	counter        string
	hits           int64
	credit         bool
	shadow, quota  bool
	start          int64 // of the window
	judged, denied bool
	need           int64 // units that must be available
	used           int64 // afterwards
}

// outcome decides a request at a time.
func (m *model) outcome(r *rlsv3.RateLimitRequest, now int64) outcome {
	charges := make([]*charge, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		hits := int64(max(1, r.GetHitsAddend()))
		if d.GetHitsAddend() != nil {
			hits = int64(d.GetHitsAddend().GetValue())
		}
		if m.on[bounded] && (hits > maxUnits && len(d.GetEntries()) > 0 || len(charges) > 64) {
			return outcome{failed: true}
		}
		charges[i] = m.find(r.GetDomain(), d, now)
		charges[i].hits, charges[i].credit = hits, m.on[negativeHits] && d.GetIsNegativeHits() && hits > 0
	}
	if !m.on[replaces] {
		replace(charges)
	}
	m.charge(charges)
	a := outcome{statuses: make([]status, len(charges))}
	for i, k := range charges {
		a.statuses[i] = m.status(k)
		a.over = a.over || a.statuses[i].over
	}
	return a
}

// find returns the charge of a descriptor: its limit, and its counter at a time.
func (m *model) find(domain string, d *ratelimitv3.RateLimitDescriptor, now int64) *charge {
	p, values := m.path(d.GetEntries())
	if l := d.GetLimit(); l != nil && !m.on[callerLimit] {
		p, values = &node{limit: &limit{requests: int64(l.GetRequestsPerUnit()), unit: l.GetUnit().String()}}, nil
		p.limit.seconds = seconds[p.limit.unit]
	}
	if p == nil || p.limit == nil {
		return &charge{}
	}
	k := &charge{limit: p.limit, shadow: p.shadow, quota: p.quota, counter: domain}
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

// path follows entries through the config and returns the node that they match and the values by which they are counted. With
// share_threshold the value is that of the config.
func (m *model) path(entries []*ratelimitv3.RateLimitDescriptor_Entry) (p *node, values []string) {
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

// next returns the node with the entry's name, else the first wildcard that matches, else the node with only the key.
func (m *model) next(level []*node, e *ratelimitv3.RateLimitDescriptor_Entry) *node {
	name := e.GetKey() + "_" + e.GetValue()
	var wild, only *node
	for _, p := range level {
		prefix, isWild := p.wild()
		switch {
		case m.on[notImported] && p.skipped:
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

// replace removes the limits that others replace.
func replace(charges []*charge) {
	replaced := map[string]bool{}
	for _, k := range charges {
		if k.limit != nil {
			for _, name := range k.replaces {
				replaced[name] = true
			}
		}
	}
	for i, k := range charges {
		if k.limit != nil && !k.unlimited && replaced[k.name] {
			charges[i] = &charge{}
		}
	}
}

// size returns the effective count of a limit.
func (m *model) size(l *limit) int64 {
	if m.on[bounded] {
		return min(l.requests, maxUnits)
	}
	return l.requests
}

// alwaysDenied reports whether the charge is denied whatever the counter is.
func (m *model) alwaysDenied(k *charge) bool { return m.on[zeroLimit] && k.requests == 0 }

// charge decides the charges in order and counts them.
func (m *model) charge(charges []*charge) {
	var counted []*charge
	denied := false
	for _, k := range charges {
		if k.limit == nil || k.unlimited {
			continue
		}
		k.need = k.hits
		if m.on[zeroHits] {
			k.need = max(1, k.need)
		}
		if m.alwaysDenied(k) {
			k.denied = !k.credit
			denied = denied || k.enforced()
			continue
		}
		counted = append(counted, k)
	}
	if denied { // the others are only peeked at
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

// enforced reports whether the charge is denied and enforced.
func (k *charge) enforced() bool { return k.denied && !k.shadow && !k.quota }

// take decides a charge, unless it was decided, and counts it. A credit always counts.
func (m *model) take(k *charge, count bool) {
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

func (m *model) status(k *charge) status {
	switch {
	case k.limit == nil || k.unlimited && m.on[unlimited]:
		return status{}
	case k.unlimited:
		return status{left: math.MaxUint32}
	case m.alwaysDenied(k) && k.enforced():
		return status{over: true, requests: 1, unit: "SECOND"}
	case m.alwaysDenied(k):
		return status{}
	}
	size := m.size(k.limit)
	s := status{k.enforced(), size, k.unit, max(0, size-k.used), k.start + k.seconds}
	unused := k.used == 0 && (!k.denied || k.need > size) // a charge that will be allowed later has a reset
	if k.enforced() && m.on[deniedNotCharged] {
		s.left = 0
	}
	overQuota := k.denied && k.quota && !k.shadow
	if unused && m.on[unusedReset] || overQuota && !m.on[quotaMode] {
		s.resetsAt = 0
	}
	return s
}
