package envoyconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// step is one entry on the way of a request to a descriptor: its attribute, and the values that come this way.
type step struct {
	descriptor *descriptor
	attribute  string // without the "descriptor." of rules
	// A value comes this way unless it is one of not, begins with one of notPrefix or is one of notGlob's: it then goes by a
	// sibling.
	not, notPrefix []string
	notGlob        []*descriptor
}

// newStep is how requests get to x. Of its siblings the one with the value itself comes first, then those with a
// star in their order, then the one with the key alone. If a sibling takes all that x could get, that one is
// returned, too.
func newStep(x *descriptor, siblings []*descriptor) (s step, taker *descriptor) {
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

// shorten leaves out what begins with one of notPrefix in any case.
func (s *step) shorten() {
	s.not = slices.DeleteFunc(s.not, func(value string) bool { return hasPrefixOf(s.notPrefix, value) })
	s.notGlob = slices.DeleteFunc(s.notGlob, func(x *descriptor) bool { return hasPrefixOf(s.notPrefix, x.prefix()) })
	all := slices.Clone(s.notPrefix)
	s.notPrefix = slices.DeleteFunc(s.notPrefix, func(prefix string) bool {
		return slices.ContainsFunc(all, func(p string) bool { return p != prefix && strings.HasPrefix(prefix, p) })
	})
}

// fixed is whether all requests have the same value here.
func (s *step) fixed() bool { return s.descriptor.value != "" && !s.descriptor.wild() }

// counted is whether each value has a counter of its own.
func (s *step) counted() bool { return !s.fixed() && !s.descriptor.shares }

// pattern is the step in the match of a rule, or "" if every value will do.
func (s *step) pattern() string {
	var parts []string
	if s.fixed() {
		return quoted(s.descriptor.value)
	}
	if prefix := s.descriptor.prefix(); prefix != "" {
		parts = append(parts, "prefix: "+quoted(prefix))
	}
	if len(s.not) > 0 {
		parts = append(parts, "not: "+quotedList(s.not))
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// conditions are what a match cannot say.
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

// sample is a value that comes this way, another one for each k. It is false if none is found.
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
