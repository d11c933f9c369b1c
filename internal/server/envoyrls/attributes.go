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

// Bounds of one request. Envoy sends a handful of each.
const (
	maxDescriptors = 64
	maxEntries     = 32
)

// remoteAddress is what Envoy calls the client's address.
const remoteAddress = "remote_address"

// asks returns the request's descriptors as the engine wants them, without those that have no entries. The error says what is
// wrong, and what to send instead.
func (m *request) asks(who *identity.Resolver) ([]headgate.BatchRequest, error) {
	switch {
	case m.err != nil:
		return nil, fmt.Errorf("the request cannot be read: %w", m.err)
	case m.domain == "":
		return nil, errors.New("domain is empty: set it in Envoy's rate limit filter")
	case len(m.descriptors) == 0:
		return nil, errors.New("there are no descriptors: give the route rate limit actions, or leave the filter out")
	case len(m.descriptors) > maxDescriptors:
		return nil, fmt.Errorf("there are more than %d descriptors: send fewer", maxDescriptors)
	}
	asks := make([]headgate.BatchRequest, 0, len(m.descriptors))
	for i := range m.descriptors {
		d := &m.descriptors[i]
		if d.blank() {
			continue
		}
		if len(d.entries) > maxEntries {
			return nil, fmt.Errorf("descriptor %d has more than %d entries: send fewer", i+1, maxEntries)
		}
		attributes, err := d.attributes(m.domain, who)
		if err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", i+1, err)
		}
		a := headgate.BatchRequest{Request: headgate.Request{Attributes: attributes, Cost: int64(max(1, m.hits))}}
		if d.hasHits {
			if d.hits > headgate.MaxCost {
				return nil, fmt.Errorf("descriptor %d: hits_addend is %d: send at most %d", i+1, d.hits, headgate.MaxCost)
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
		asks = append(asks, a)
	}
	return asks, nil
}

// align returns a decision for each descriptor, given those on the asks. A descriptor without entries, which matches no limit
// in envoyproxy/ratelimit either, is allowed.
func (m *request) align(decisions []headgate.Decision) []headgate.Decision {
	if len(decisions) == len(m.descriptors) {
		return decisions
	}
	all := make([]headgate.Decision, len(m.descriptors))
	for i := range m.descriptors {
		if m.descriptors[i].blank() {
			all[i] = headgate.Decision{Allowed: true, Path: headgate.PathNone}
			continue
		}
		all[i], decisions = decisions[0], decisions[1:]
	}
	return all
}

// blank reports whether the descriptor has no entries, and so describes nothing.
func (d *descriptor) blank() bool { return len(d.entries) == 0 }

// units are the lengths of the units of time by their numbers. As in envoyproxy/ratelimit a month is 30 days.
var units = []time.Duration{1: time.Second, time.Minute, time.Hour, day, 30 * day, year: 365 * day, week: 7 * day}

const (
	day = 24 * time.Hour
	// year is the last unit that a request may have, and week one that only responses do.
	year, week = 6, 7
)

// limit is what is asked for. A window longer than a year could not be counted.
func (o *override) limit() (*headgate.Limit, error) {
	if o.unit == 0 || o.unit > year {
		return nil, fmt.Errorf("there is no unit %d: send 1 (second) to %d (year)", o.unit, year)
	}
	span := units[o.unit]
	if longest := uint64(units[year] / span); o.times > longest {
		return nil, fmt.Errorf("unit_multiplier is %d: send at most %d with this unit", o.times, longest)
	}
	return &headgate.Limit{Count: int64(o.requests), Window: span * time.Duration(max(1, o.times))}, nil
}

// attributes of a descriptor: its entries under their own names; those that rules know by another name under that, too, as they
// would be read from the request itself; and which entries there are, so that a rule can be about exactly these.
func (d *descriptor) attributes(domain string, who *identity.Resolver) (headgate.Attributes, error) {
	a := make(headgate.Attributes, 2+2*len(d.entries))
	a["domain"] = domain
	var room [4]string
	keys := room[:0]
	for i, e := range d.entries {
		keys = append(keys, commas.Replace(e.key))
		name := "descriptor." + e.key
		again := 1
		for _, other := range d.entries[:i] {
			if other.key == e.key {
				again++
			}
		}
		if again > 1 {
			if e.key == "api_key" {
				e.value = headgate.HashKey(e.value)
			}
			a[name+"."+strconv.Itoa(again)] = e.value
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
	return a, who.Normalize(a)
}

var builtIn = headgate.BuiltIn()

// commas keeps a key that has one from looking like two keys.
var commas = strings.NewReplacer(`\`, `\\`, ",", `\,`)
