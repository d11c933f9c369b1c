package headgate

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unique"
)

// override is the limit of a subject that replaces a rule's limit.
type override struct {
	exception
	limit packedLimit
}

// packedLimit is a valid limit in half the memory, since there may be millions.
type packedLimit struct {
	window       time.Duration
	zone         *time.Location
	count, burst uint32
	algorithm    Algorithm
	align        Align
	calendar     Calendar
	anchor       uint8
}

func pack(l Limit) packedLimit {
	return packedLimit{
		window: l.Window, zone: l.TimeZone, count: uint32(l.Count), burst: uint32(l.Burst),
		algorithm: l.Algorithm, align: l.Align, calendar: l.Calendar, anchor: uint8(l.AnchorDay),
	}
}

func (p packedLimit) limit() Limit {
	return Limit{
		Window: p.window, TimeZone: p.zone, Count: int64(p.count), Burst: int64(p.burst),
		Algorithm: p.algorithm, Align: p.align, Calendar: p.calendar, AnchorDay: int(p.anchor),
	}
}

// exception is the expiry and the reason of an override or exemption.
type exception struct {
	expires int64 // Unix seconds; 0 means never
	reason  unique.Handle[string]
}

// expired reports whether the exception has expired at now, in Unix seconds.
func (x exception) expired(now int64) bool { return x.expires != 0 && x.expires <= now }

// expiryOf returns an expiry in Unix seconds, or 0 for the zero time.
func expiryOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.Unix(), 1)
}

// exceptionOf returns the hash that identifies the overrides of a limit, or the exemptions from a rule if limit is "".
func exceptionOf(rule, limit string) uint64 { return fold(hashParts("exception", rule, limit)) }

// exceptionOfAll identifies exemptions from all rules.
var exceptionOfAll = exceptionOf("", "")

// exceptionKey returns the key of a subject among the exceptions of a rule. Subjects are hashes, so that mixing in the rule keeps
// 128 bits that no client can choose.
func exceptionKey(s Subject, exception uint64) Subject {
	binary.BigEndian.PutUint64(s[8:], binary.BigEndian.Uint64(s[8:])^exception)
	return s
}

// exceptionTables hold all overrides and exemptions. Replace swaps them as a whole.
type exceptionTables struct {
	overrides table[override]
	exempt    table[exception]
	networks  networkTable
	kinds     [4]atomic.Bool // by index in exemptBy: whether there was ever an exemption
}

// networkTable looks up exemptions by address.
type networkTable struct {
	mu      sync.RWMutex
	entries map[networkKey]exception
	bits    []int // prefix lengths that were ever used, sorted
}

type networkKey struct {
	network netip.Prefix
	rule    string
}

func (t *networkTable) get(address netip.Prefix, rule string, now int64) (x exception, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, n := range t.bits {
		if n > address.Bits() {
			break
		}
		network, err := address.Addr().Prefix(n)
		if err != nil {
			break
		}
		if x, ok = t.entries[networkKey{network, rule}]; ok && !x.expired(now) {
			return x, true
		}
	}
	return exception{}, false
}

func (t *networkTable) set(key networkKey, x exception) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries == nil {
		t.entries = map[networkKey]exception{}
	}
	t.entries[key] = x
	t.bits = addSorted(t.bits, key.network.Bits())
}

func (t *networkTable) remove(key networkKey) {
	t.mu.Lock()
	delete(t.entries, key)
	t.mu.Unlock()
}

func (t *networkTable) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.entries)
}

// exceptionLookup looks up the exceptions of one request.
type exceptionLookup struct {
	tables     *exceptionTables
	attributes Attributes
	exceptions *Exceptions
	time       int64 // Unix seconds; 0 until first used
	hasKeys    bool  // whether keys and address are set
	keys       [3]Subject
	has        [3]bool
	address    netip.Prefix
	hasAddress bool
}

// lookup returns a lookup of the exceptions of a request.
func (e *Exceptions) lookup(a Attributes) exceptionLookup {
	t := e.tables.Load()
	return exceptionLookup{tables: t, attributes: a, exceptions: e}
}

// anyExempt reports whether there was ever an exemption.
func (t *exceptionTables) anyExempt() bool {
	for i := range t.kinds {
		if t.kinds[i].Load() {
			return true
		}
	}
	return false
}

// override returns the override of a subject, if it has one that has not expired.
func (l *exceptionLookup) override(s Subject, exception uint64) (override, bool) {
	o, ok := l.tables.overrides.get(exceptionKey(s, exception))
	return o, ok && (o.expires == 0 || !o.expired(l.now()))
}

// now reads the clock once per request, and not at all for a request without exceptions that expire.
func (l *exceptionLookup) now() int64 {
	if l.time == 0 {
		l.time = l.exceptions.now()
	}
	return l.time
}

// exemption returns the exemption from the rule or from all rules, and the attribute that grants it; "" if there is none.
func (l *exceptionLookup) exemption(rule *compiledRule) (x exception, by string) {
	if !l.tables.anyExempt() {
		return x, ""
	}
	l.makeKeys()
	if x, by = l.exemptionFrom(rule.ID, rule.exception); by != "" {
		return x, by
	}
	return l.exemptionFrom("", exceptionOfAll)
}

func (l *exceptionLookup) exemptionFrom(rule string, exception uint64) (x exception, by string) {
	for i, key := range l.keys {
		if !l.has[i] {
			continue
		}
		if x, ok := l.tables.exempt.get(exceptionKey(key, exception)); ok && (x.expires == 0 || !x.expired(l.now())) {
			return x, exemptBy[i]
		}
	}
	if l.hasAddress {
		if x, ok := l.tables.networks.get(l.address, rule, l.now()); ok {
			return x, attrIP
		}
	}
	return x, ""
}

// makeKeys sets the keys and the address of the request, once.
func (l *exceptionLookup) makeKeys() {
	if l.hasKeys {
		return
	}
	l.hasKeys = true
	for i := range l.keys {
		name := exemptBy[i]
		if l.attributes[name] != "" && l.tables.kinds[i].Load() {
			l.keys[i], _ = l.exceptions.subjects.of(exemptBy[i:i+1], l.attributes)
			l.has[i] = true
		}
	}
	if l.tables.kinds[3].Load() {
		l.address, l.hasAddress = parseAddress(l.attributes[attrIP])
	}
}
