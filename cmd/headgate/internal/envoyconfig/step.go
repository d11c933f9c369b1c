package envoyconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// step is one entry of a descriptorPath: its attribute, and the values that reach the descriptor.
type step struct {
	descriptor *descriptor
	attribute  string // without the "descriptor." of rules
	// Values in not, with a prefix in notPrefix or matched by notGlob are excluded, because a sibling matches them first.
	not, notPrefix []string
	notGlob        []*descriptor
}

// newStep returns the step to x. Siblings take precedence in this order: the sibling with the exact value, siblings with a wildcard in
// config order, the sibling with the key alone. If a sibling matches all values of x, it is returned as covering.
func newStep(x *descriptor, siblings []*descriptor) (s step, covering *descriptor) {
	s = step{descriptor: x, attribute: x.key}
	if x.value != "" && !x.wild() {
		return s, nil
	}
	before := true
	for _, other := range siblings {
		switch {
		case other == x:
			before = false
		case other.key != x.key || other.value == "":
		case !other.wild():
			if x.value == "" || x.matches(other.value) {
				s.not = append(s.not, other.value)
			}
		case x.wild() && !before:
		case !other.glob() && strings.HasPrefix(x.prefix(), other.prefix()):
			return s, other
		case !overlap(x, other):
		case other.glob():
			s.notGlob = append(s.notGlob, other)
		default:
			s.notPrefix = append(s.notPrefix, other.prefix())
		}
	}
	s.shorten()
	return s, nil
}

// shorten removes exclusions that notPrefix already covers.
func (s *step) shorten() {
	s.not = slices.DeleteFunc(s.not, func(value string) bool { return hasPrefixOf(s.notPrefix, value) })
	s.notGlob = slices.DeleteFunc(s.notGlob, func(x *descriptor) bool { return hasPrefixOf(s.notPrefix, x.prefix()) })
	all := slices.Clone(s.notPrefix)
	s.notPrefix = slices.DeleteFunc(s.notPrefix, func(prefix string) bool {
		return slices.ContainsFunc(all, func(p string) bool { return p != prefix && strings.HasPrefix(prefix, p) })
	})
}

// fixed reports whether the step matches a single value.
func (s *step) fixed() bool { return s.descriptor.value != "" && !s.descriptor.wild() }

// counted reports whether each value has its own counter.
func (s *step) counted() bool { return !s.fixed() && !s.descriptor.shares }

// pattern returns the pattern for the match of a rule, or "" if it matches every value.
func (s *step) pattern() string {
	var parts []string
	if s.fixed() {
		return quoteYAML(s.descriptor.value)
	}
	if prefix := s.descriptor.prefix(); prefix != "" {
		parts = append(parts, "prefix: "+quoteYAML(prefix))
	}
	if len(s.not) > 0 {
		parts = append(parts, "not: "+quoteYAMLList(s.not))
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// conditions returns the conditions that a match cannot express.
func (s *step) conditions() []string {
	var all []string
	if s.descriptor.glob() {
		all = append(all, s.descriptor.condition(s.attribute))
	}
	for _, prefix := range s.notPrefix {
		all = append(all, fmt.Sprintf("!descriptor[%q].startsWith(%q)", s.attribute, prefix))
	}
	for _, x := range s.notGlob {
		all = append(all, "!("+x.condition(s.attribute)+")")
	}
	return all
}

// sample returns the kth value that the step matches. It returns false if it finds none.
func (s *step) sample(k int) (string, bool) {
	if s.fixed() {
		return s.descriptor.value, true
	}
	const letters, tries = 10, 1_000
	for i := range int64(tries) {
		value := strings.ReplaceAll(cmp.Or(s.descriptor.value, "*"), "*", strconv.FormatInt(letters+i, 36))
		if slices.Contains(s.not, value) || hasPrefixOf(s.notPrefix, value) ||
			slices.ContainsFunc(s.notGlob, func(x *descriptor) bool { return x.matches(value) }) {
			continue
		}
		if k == 0 {
			return value, true
		}
		k--
	}
	return "", false
}

func hasPrefixOf(prefixes []string, value string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(value, p) })
}
