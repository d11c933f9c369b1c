package headgate

import (
	"net/netip"
	"slices"
	"strings"
)

// index finds the rules that may match a request without checking every rule. Each rule is filed under the alternatives of its most
// selective condition; rules without such a condition are in always. An entry is twice the number of a rule, plus one if the rule
// has further conditions to check.
type index struct {
	paths      tree // by template
	lowerPaths tree // by template in lower case
	hasPaths   bool
	hasLower   bool
	attributes []attributeIndex
	always     []int32
}

// attributeIndex finds rules by the value of one attribute.
type attributeIndex struct {
	slot     int
	values   map[string][]int32
	prefixes map[string][]int32
	lengths  []int     // of the prefixes
	first    [256]bool // first bytes of the prefixes
	networks map[netip.Prefix][]int32
	bits     [2][]int           // prefix lengths of the networks: IPv4, IPv6
	suffixes map[string][]int32 // of host wildcards: ".example.com"
}

// key is an alternative that a rule can be filed under.
type key struct {
	kind uint8
	slot int
	text string
}

const (
	keyValue = iota
	keyPrefix
	keyNetwork
	keySuffix
	keyPath
	keyLowerPath
)

// keys returns the alternatives of a condition: if the condition holds, one of them does. If there are none, the condition cannot
// be indexed.
func (c *condition) keys() []key {
	var keys []key
	if c.name == attrPath {
		for i, t := range c.templates {
			if t.deep && len(t.segments) == 0 {
				return nil
			}
			kind := uint8(keyPath)
			text := c.pattern.Values[i]
			if c.ignoreCase {
				kind, text = keyLowerPath, foldCase(text)
			}
			keys = append(keys, key{kind, c.slot, text})
		}
		return keys
	}
	for _, v := range c.pattern.Values {
		if suffix, ok := strings.CutPrefix(v, "*"); ok && c.name == attrHost {
			keys = append(keys, key{keySuffix, c.slot, suffix})
			continue
		}
		keys = append(keys, key{keyValue, c.slot, v})
	}
	if c.pattern.Prefix != "" {
		keys = append(keys, key{keyPrefix, c.slot, c.pattern.Prefix})
	}
	for _, n := range c.pattern.CIDR {
		keys = append(keys, key{keyNetwork, c.slot, n.String()})
	}
	return keys
}

// newIndex indexes all rules and returns for each rule the check that remains after a lookup.
func newIndex(rules []compiledRule) (index, []check) {
	count := map[key]int{}
	for i := range rules {
		for j := range rules[i].conditions {
			for _, k := range rules[i].conditions[j].keys() {
				count[k]++
			}
		}
	}
	var x index
	checks := make([]check, len(rules))
	for i := range rules {
		r := &rules[i]
		if r.off {
			continue
		}
		best, keys := r.bestCondition(count)
		checks[i] = r.without(best)
		found := int32(i) << 1
		if checks[i].needed() {
			found |= 1
		}
		if best < 0 {
			x.always = append(x.always, found)
		}
		if best >= 0 && r.conditions[best].name == attrPath {
			x.filePaths(&r.conditions[best], found)
			continue
		}
		for _, k := range keys {
			x.file(k, found)
		}
	}
	return x, checks
}

// bestCondition returns the index and the keys of the condition whose keys the fewest rules share, or -1 if none can be indexed.
func (r *compiledRule) bestCondition(count map[key]int) (best int, under []key) {
	best = -1
	least := 0
	for i := range r.conditions {
		keys := r.conditions[i].keys()
		weight := 0
		for _, k := range keys {
			weight += count[k]
		}
		if len(keys) > 0 && (best < 0 || weight < least) {
			best, least, under = i, weight, keys
		}
	}
	return best, under
}

// without returns the check of all conditions except the indexed one, for which a lookup is exact unless it has Not.
func (r *compiledRule) without(indexed int) check {
	unknown := r.When.Attributes == nil
	rest := check{
		when:        r.When.Holds,
		readsPath:   unknown || slices.Contains(r.When.Attributes, attrPath),
		readsMethod: unknown || slices.Contains(r.When.Attributes, attrMethod),
	}
	for i := range r.conditions {
		if i != indexed || len(r.conditions[i].pattern.Not) > 0 {
			rest.conditions = append(rest.conditions, r.conditions[i])
		}
	}
	return rest
}

// check is the conditions of a rule that remain to be checked after the index has found it.
type check struct {
	conditions []condition
	when       func(Attributes) bool
	// readsPath and readsMethod are whether when may depend on the path or the method, and so on the reading.
	readsPath, readsMethod bool
}

// needed reports whether there is anything to check.
func (c *check) needed() bool { return len(c.conditions) > 0 || c.when != nil }

// hold reports whether all conditions hold in the current reading.
func (c *check) hold(v *view) bool {
	switch {
	case !allHold(c.conditions, v):
		return false
	case c.when == nil:
		return true
	case !v.readings.ambiguous():
		return c.when(v.attributes)
	}
	return v.readings.holds(c, v)
}

// filePaths adds a rule under the path templates of a condition.
func (x *index) filePaths(c *condition, rule int32) {
	paths, has := &x.paths, &x.hasPaths
	if c.ignoreCase {
		paths, has = &x.lowerPaths, &x.hasLower
	}
	*has = true
	for _, t := range c.templates {
		paths.add(t, rule)
	}
}

// file adds a rule under a key.
func (x *index) file(k key, rule int32) {
	a := x.attribute(k.slot)
	switch k.kind {
	case keyValue:
		a.values[k.text] = append(a.values[k.text], rule)
	case keySuffix:
		a.suffixes[k.text] = append(a.suffixes[k.text], rule)
	case keyPrefix:
		a.prefixes[k.text] = append(a.prefixes[k.text], rule)
		a.lengths = addSorted(a.lengths, len(k.text))
		a.first[k.text[0]] = true
	case keyNetwork:
		n := netip.MustParsePrefix(k.text)
		a.networks[n] = append(a.networks[n], rule)
		family := familyOf(n)
		a.bits[family] = addSorted(a.bits[family], n.Bits())
	}
}

// attribute returns the index of an attribute, creating it if necessary.
func (x *index) attribute(slot int) *attributeIndex {
	for i := range x.attributes {
		if x.attributes[i].slot == slot {
			return &x.attributes[i]
		}
	}
	x.attributes = append(x.attributes, attributeIndex{
		slot: slot, values: map[string][]int32{}, prefixes: map[string][]int32{},
		networks: map[netip.Prefix][]int32{}, suffixes: map[string][]int32{},
	})
	return &x.attributes[len(x.attributes)-1]
}

// familyOf returns 0 for IPv4 and 1 for IPv6.
func familyOf(n netip.Prefix) int {
	if n.Addr().Is6() {
		return 1
	}
	return 0
}

// addSorted inserts n into a sorted list unless it contains n.
func addSorted(list []int, n int) []int {
	i, found := slices.BinarySearch(list, n)
	if found {
		return list
	}
	return slices.Insert(list, i, n)
}

// find appends the entries of all rules that may match, possibly with duplicates.
func (x *index) find(v *view, found []int32) []int32 {
	found = append(found, x.always...)
	for i := range x.attributes {
		a := &x.attributes[i]
		found = a.find(v.values[a.slot], found)
	}
	if v.values[slotPath] == "" {
		return found
	}
	if x.hasPaths {
		found = x.paths.find(v.path(false), 0, found)
	}
	if x.hasLower {
		found = x.lowerPaths.find(v.path(true), 0, found)
	}
	return found
}

// find appends the entries of the rules that a value of the attribute may match.
func (a *attributeIndex) find(value string, found []int32) []int32 {
	if value == "" {
		return found
	}
	if len(a.values) > 0 {
		found = append(found, a.values[value]...)
	}
	if a.first[value[0]] {
		for _, n := range a.lengths {
			if n > len(value) {
				break
			}
			found = append(found, a.prefixes[value[:n]]...)
		}
	}
	if len(a.suffixes) > 0 {
		for i := 1; i < len(value); i++ {
			if value[i] == '.' {
				found = append(found, a.suffixes[value[i:]]...)
			}
		}
	}
	if len(a.networks) == 0 {
		return found
	}
	address, ok := parseAddress(value)
	if !ok {
		return found
	}
	for _, n := range a.bits[familyOf(address)] {
		if n > address.Bits() {
			break
		}
		network, err := address.Addr().Prefix(n)
		if err == nil {
			found = append(found, a.networks[network]...)
		}
	}
	return found
}
