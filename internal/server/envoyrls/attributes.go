package envoyrls

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/server/check"
)

// Bounds of one request. Envoy sends a few of each.
const (
	maxDescriptors = 64
	maxEntries     = 32
)

// remoteAddress is Envoy's key of the client's address.
const remoteAddress = "remote_address"

// batch returns the descriptors as requests for the engine, without those that have no entries. The error contains the remedy.
func (m *request) batch(resolver *identity.Resolver) ([]headgate.BatchRequest, error) {
	switch {
	case m.err != nil:
		return nil, fmt.Errorf("cannot decode the request: %w", m.err)
	case m.domain == "":
		return nil, errors.New("domain is empty: set it in Envoy's rate limit filter")
	case len(m.descriptors) == 0:
		return nil, errors.New("no descriptors: add rate limit actions to the route, or remove the filter")
	case len(m.descriptors) > maxDescriptors:
		return nil, fmt.Errorf("more than %d descriptors: send fewer", maxDescriptors)
	}
	batch := make([]headgate.BatchRequest, 0, len(m.descriptors))
	for i := range m.descriptors {
		d := &m.descriptors[i]
		if d.isEmpty() {
			continue
		}
		if len(d.entries) > maxEntries {
			return nil, fmt.Errorf("descriptor %d: more than %d entries: send fewer", i+1, maxEntries)
		}
		attributes, err := d.attributes(m.domain, resolver)
		if err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", i+1, err)
		}
		a := headgate.BatchRequest{Request: headgate.Request{Attributes: attributes, Cost: int64(max(1, m.hits))}}
		if d.hasHits {
			if d.hits > headgate.MaxCost {
				return nil, fmt.Errorf("descriptor %d: hits_addend %d: must be at most %d", i+1, d.hits, headgate.MaxCost)
			}
			a.Cost, a.Peek = max(1, int64(d.hits)), d.hits == 0
		}
		a.Credit = d.negative && !a.Peek
		if d.limit.given {
			limit, err := d.limit.limit()
			if err != nil {
				return nil, fmt.Errorf("descriptor %d: limit: %w", i+1, err)
			}
			a.Limit = limit
		}
		if err := check.Validate(a.Request); err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", i+1, err)
		}
		batch = append(batch, a)
	}
	return batch, nil
}

// align returns a decision for each descriptor, given those of the batch. A descriptor without entries is allowed; in
// envoyproxy/ratelimit it matches no limit either.
func (m *request) align(decisions []headgate.Decision) []headgate.Decision {
	if len(decisions) == len(m.descriptors) {
		return decisions
	}
	all := make([]headgate.Decision, len(m.descriptors))
	for i := range m.descriptors {
		if m.descriptors[i].isEmpty() {
			all[i] = headgate.Decision{Allowed: true, Path: headgate.PathNone}
			continue
		}
		all[i], decisions = decisions[0], decisions[1:]
	}
	return all
}

// isEmpty reports whether the descriptor has no entries.
func (d *descriptor) isEmpty() bool { return len(d.entries) == 0 }

// units contains the lengths of Envoy's units of time by number. As in envoyproxy/ratelimit, a month has 30 days.
var units = []time.Duration{1: time.Second, time.Minute, time.Hour, day, 30 * day, year: 365 * day, week: 7 * day}

const (
	day = 24 * time.Hour
	// year is the last unit that a request may have; week occurs only in responses.
	year, week = 6, 7
)

// limit returns the requested limit. A window longer than a year cannot be counted.
func (o *override) limit() (*headgate.Limit, error) {
	if o.unit == 0 || o.unit > year {
		return nil, fmt.Errorf("invalid unit %d: must be 1 (second) to %d (year)", o.unit, year)
	}
	span := units[o.unit]
	if longest := uint64(units[year] / span); o.times > longest {
		return nil, fmt.Errorf("unit_multiplier %d: must be at most %d with this unit", o.times, longest)
	}
	return &headgate.Limit{Count: int64(o.requests), Window: span * time.Duration(max(1, o.times))}, nil
}

// attributes returns the attributes of a descriptor: its entries as descriptor.KEY; entries whose key is a built-in attribute
// also under that name, normalized as if they were read from the request; and the list of keys, so that a rule can match
// exactly these.
func (d *descriptor) attributes(domain string, resolver *identity.Resolver) (headgate.Attributes, error) {
	a := make(headgate.Attributes, 2+2*len(d.entries))
	a["domain"] = domain
	var buffer [4]string
	keys := buffer[:0]
	for i, e := range d.entries {
		keys = append(keys, commas.Replace(e.key))
		name := "descriptor." + e.key
		occurrence := 1
		for _, other := range d.entries[:i] {
			if other.key == e.key {
				occurrence++
			}
		}
		if occurrence > 1 {
			if e.key == "api_key" {
				e.value = headgate.HashKey(e.value)
			}
			a[name+"."+strconv.Itoa(occurrence)] = e.value
			continue
		}
		a[name] = e.value
		switch {
		case e.key == remoteAddress:
			a["ip"] = e.value
		case e.key != "domain" && e.key != "entries" && slices.Contains(builtIn, e.key):
			a[e.key] = e.value
		}
	}
	a["entries"] = strings.Join(keys, ",")
	return a, resolver.Normalize(a)
}

var builtIn = headgate.BuiltIn()

// commas escapes commas in keys, which separate the keys in entries.
var commas = strings.NewReplacer(`\`, `\\`, ",", `\,`)
