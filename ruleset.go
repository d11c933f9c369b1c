package headgate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// RuleSet is a set of validated and compiled rules. It is immutable and safe for concurrent use.
type RuleSet struct {
	rules     []compiledRule
	byID      map[string]int32
	by        []subjectBy
	slots     slots
	index     index
	checks    []check
	competing bool // whether any rule has a priority
	borrowing bool // whether any rule charges the counters of another

	readsPath, readsMethod bool     // whether any rule reads it
	methods                []string // methods that AnyMethod stands for

	names   []string
	mode    Mode
	version string
}

// Compile validates and compiles rules. Its error joins a *RuleError for every mistake.
func Compile(rules ...Rule) (*RuleSet, error) {
	s := &RuleSet{slots: newSlots(), rules: make([]compiledRule, len(rules)), byID: make(map[string]int32, len(rules))}
	var problems []error
	hash := sha256.New()
	for i, rule := range rules {
		wrong := s.compile(&s.rules[i], rule)
		if earlier, twice := s.byID[rule.ID]; twice && rule.ID != "" {
			problems = append(problems, &RuleError{i, rule.ID, []string{"id"}, "duplicate: ids name counters and must be unique", int(earlier)})
		} else {
			s.byID[rule.ID] = int32(i)
		}
		for _, p := range wrong {
			problems = append(problems, &RuleError{i, rule.ID, p.path, p.text, -1})
		}
		hash.Write(appendFields(nil, rule))
	}
	problems = append(problems, s.resolveCounters()...)
	if len(problems) == 0 {
		problems = append(s.collisions(), s.checkWeight()...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	s.index, s.checks = newIndex(s.rules)
	for i := range s.rules {
		s.competing = s.competing || s.rules[i].priority > 0
	}
	s.initReadings()
	s.names = attributesOf(s.rules)
	s.version = hex.EncodeToString(hash.Sum(nil)[:6])
	return s, nil
}

// appendFields appends the fields of a rule that are set. Fields that are not set are left out, so that a release which adds a field does
// not change the version of rules that do not use it.
func appendFields(b []byte, rule Rule) []byte {
	v, unset := reflect.ValueOf(rule), reflect.ValueOf(Rule{})
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		text := fmt.Sprintf("%+v", v.Field(i).Interface())          // maps are printed in order
		if text != fmt.Sprintf("%+v", unset.Field(i).Interface()) { // it may be an empty map
			b = fmt.Appendf(b, "%s:%s\n", v.Type().Field(i).Name, text)
		}
	}
	return append(b, '\n')
}

// collisions returns an error for each counter that two limits would share: with 48 bits that can happen.
func (s *RuleSet) collisions() []error {
	var problems []error
	owner := map[Counter]int{}
	for i := range s.rules {
		for j := range s.rules[i].limits {
			l := &s.rules[i].limits[j]
			for _, c := range slices.Concat(l.counters[:], l.candidateCounters[:]) {
				if other, taken := owner[c]; taken {
					problems = append(problems, &RuleError{
						i, s.rules[i].ID,
						[]string{"id"},
						"has the same counter as rule " + quote(s.rules[other].ID) + " by chance: change one of the ids", other,
					})
				}
				owner[c] = i
			}
		}
	}
	return problems
}

// WithMode returns the same rules with a cap on their mode: Shadow denies nothing, and Off disables all rules. It is the kill switch.
func (s *RuleSet) WithMode(mode Mode) *RuleSet {
	capped := *s
	capped.mode = mode
	capped.version, _, _ = strings.Cut(s.version, "+")
	if mode != Enforce {
		capped.version += "+" + mode.String()
	}
	return &capped
}

// Version returns a hash of the rules, which changes whenever a rule or the mode does.
func (s *RuleSet) Version() string { return s.version }

// Rules returns the rules in order.
func (s *RuleSet) Rules() []Rule {
	rules := make([]Rule, len(s.rules))
	for i := range s.rules {
		rules[i] = s.rules[i].Rule
	}
	return rules
}

// Rule returns the rule with this ID, or false if there is none.
func (s *RuleSet) Rule(id string) (Rule, bool) {
	n, ok := s.byID[id]
	if !ok {
		return Rule{}, false
	}
	return s.rules[n].Rule, true
}

// SubjectAttributes returns the attributes that a rule counts a request by in its primary reading, with client replaced by the
// attribute that it is derived from. It returns nil if the rule does not exist or the request has none of the attributes.
func (s *RuleSet) SubjectAttributes(rule string, a Attributes) Attributes {
	n, ok := s.byID[rule]
	if !ok {
		return nil
	}
	var subject Attributes
	for _, name := range s.by[s.rules[n].by].resolve(a) {
		if value := a[name]; value != "" {
			if subject == nil {
				subject = Attributes{}
			}
			if name == attrPath && s.rules[n].Match.IgnoreCase {
				value = foldCase(value)
			}
			subject[name] = value
		}
	}
	return subject
}

// Attributes returns the sorted names of all attributes that the rules read; a request needs no others. The slice is shared and must
// not be changed.
func (s *RuleSet) Attributes() []string { return s.names }

// attributesOf returns the sorted names of all attributes that the rules read.
func attributesOf(rules []compiledRule) []string {
	used := map[string]bool{}
	for i := range rules {
		r := &rules[i]
		for _, name := range slices.Concat(r.By, r.When.Attributes) {
			used[name] = true
		}
		for _, c := range r.allConditions() {
			used[c.name] = true
		}
		if len(r.Tiers) > 0 {
			used[attrTier] = true
		}
		if r.Cost.From != "" {
			used[r.Cost.From] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// match appends the indexes of the rules that apply, in order.
func (s *RuleSet) match(v *view, found []int32) []int32 {
	if v.readings.ambiguous() {
		return s.matchReadings(v, found)
	}
	return s.matchReading(v, found)
}

// matchReading appends the indexes of the rules that apply in the current reading, in order.
func (s *RuleSet) matchReading(v *view, found []int32) []int32 {
	candidates := s.index.find(v, found)
	slices.Sort(candidates)
	kept := candidates[:0]
	last := int32(-1)
	for _, c := range candidates {
		n := c >> 1
		if n != last && (c&1 == 0 || s.checks[n].hold(v)) {
			kept = append(kept, n)
		}
		last = n
	}
	if !s.competing {
		return kept
	}
	return s.compete(kept)
}

// compete removes each rule with a priority that is displaced by a rule of the same By with a higher priority.
func (s *RuleSet) compete(found []int32) []int32 {
	competing := false
	for _, n := range found {
		competing = competing || s.rules[n].priority > 0
	}
	if !competing {
		return found
	}
	kept := found[:0]
	for i, n := range found {
		if s.superior(found, i) < 0 {
			kept = append(kept, n)
		}
	}
	return kept
}

// RuleError is one mistake in a rule.
type RuleError struct {
	// Index is the index of the rule among the compiled rules, and ID its ID.
	Index int
	ID    string
	// Path is the path to the mistake in the keys of a rule file: "limits", "month".
	Path []string
	// Problem describes the mistake and how to fix it.
	Problem string
	// Other is the index of another rule that is involved, or -1.
	Other int
}

func (e *RuleError) Error() string {
	name := quote(e.ID)
	if e.ID == "" {
		name = strconv.Itoa(e.Index + 1)
	}
	if len(e.Path) == 0 {
		return "rule " + name + ": " + e.Problem
	}
	return "rule " + name + ": " + strings.Join(e.Path, ".") + ": " + e.Problem
}

func quote(s string) string { return strconv.Quote(s) }
