package headgate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// RuleSet is rules that were checked and made ready. It never changes and is safe for use by many goroutines.
type RuleSet struct {
	rules     []compiledRule
	byID      map[string]int32
	by        []subjectBy
	slots     slots
	index     index
	checks    []check
	competing bool // whether any rule has a priority

	readsPath, readsMethod bool     // whether any rule looks at it
	methods                []string // that AnyMethod stands for

	names   []string
	mode    Mode
	version string
}

// Compile checks all rules and makes them ready. Its error joins a *RuleError for everything that is wrong.
func Compile(rules ...Rule) (*RuleSet, error) {
	s := &RuleSet{slots: newSlots(), rules: make([]compiledRule, len(rules)), byID: make(map[string]int32, len(rules))}
	var problems []error
	hash := sha256.New()
	for i, rule := range rules {
		wrong := s.compile(&s.rules[i], rule)
		if earlier, twice := s.byID[rule.ID]; twice && rule.ID != "" {
			problems = append(problems, &RuleError{i, rule.ID, []string{"id"}, "is the id of another rule: ids make counters and must differ", int(earlier)})
		} else {
			s.byID[rule.ID] = int32(i)
		}
		for _, p := range wrong {
			problems = append(problems, &RuleError{i, rule.ID, p.path, p.text, -1})
		}
		hash.Write(fmt.Appendf(nil, "%+v\n", rule)) // every field has a text of its own, and maps are printed in order
	}
	if len(problems) == 0 {
		problems = append(s.collisions(), s.tooHeavy()...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	s.index, s.checks = newIndex(s.rules)
	for i := range s.rules {
		s.competing = s.competing || s.rules[i].Priority > 0
	}
	s.readsReadings()
	s.names = attributesOf(s.rules)
	s.version = hex.EncodeToString(hash.Sum(nil)[:6])
	return s, nil
}

// collisions finds counters that two limits would share: 48 bits are few enough to look.
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
						"has by chance the same counter as " + quote(s.rules[other].ID) + ": change one of the ids", other,
					})
				}
				owner[c] = i
			}
		}
	}
	return problems
}

// WithMode is the same rules, none of which does more than mode lets it: the kill switch.
func (s *RuleSet) WithMode(mode Mode) *RuleSet {
	capped := *s
	capped.mode = mode
	capped.version, _, _ = strings.Cut(s.version, "+")
	if mode != Enforce {
		capped.version += "+" + mode.String()
	}
	return &capped
}

// Version names what the rules say: it changes whenever they do.
func (s *RuleSet) Version() string { return s.version }

// Rules are those of the set, in order.
func (s *RuleSet) Rules() []Rule {
	rules := make([]Rule, len(s.rules))
	for i := range s.rules {
		rules[i] = s.rules[i].Rule
	}
	return rules
}

// Rule is the one with this ID; false if there is none.
func (s *RuleSet) Rule(id string) (Rule, bool) {
	n, ok := s.byID[id]
	if !ok {
		return Rule{}, false
	}
	return s.rules[n].Rule, true
}

// SubjectAttributes are those of a request that a rule counts by, client resolved: what its subject is, in the first reading of the
// request. They are nil if there is no such rule, or the request has none of them.
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

// Attributes are the names of all attributes that the rules look at, in order: others need not be in a request. The slice is
// shared; it must not be changed.
func (s *RuleSet) Attributes() []string { return s.names }

// attributesOf are the names of all attributes that the rules look at, in order.
func attributesOf(rules []compiledRule) []string {
	used := map[string]bool{}
	for i := range rules {
		r := &rules[i]
		for _, name := range slices.Concat(r.By, r.When.Attributes) {
			used[name] = true
		}
		for _, c := range r.conditions {
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

// match appends the rules that apply, in their order.
func (s *RuleSet) match(v *view, found []int32) []int32 {
	if v.readings.ambiguous() {
		return s.matchReadings(v, found)
	}
	return s.matchReading(v, found)
}

// matchReading is match for the present reading.
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

// compete leaves of the rules with a priority only the highest of each By.
func (s *RuleSet) compete(found []int32) []int32 {
	competing := false
	for _, n := range found {
		competing = competing || s.rules[n].Priority > 0
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

// RuleError is one thing that is wrong with a rule.
type RuleError struct {
	// Index of the rule among those that were compiled, and its ID.
	Index int
	ID    string
	// Path leads to what is wrong by the words of a rule document: "limits", "month".
	Path []string
	// Problem says what is wrong and what to write instead.
	Problem string
	// Other is the index of another rule that takes part in the problem, or -1.
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
