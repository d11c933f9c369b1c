package ruledoc

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// compile hands the rules to package headgate and finds the places of what it finds wrong.
func (r *reader) compile() {
	rules := make([]headgate.Rule, len(r.rules))
	for i, rule := range r.rules {
		rules[i] = rule.Rule
	}
	set, err := headgate.Compile(rules...)
	if err == nil {
		r.document.Source, r.document.Rules = rules, set.WithMode(r.document.Mode)
		return
	}
	told := r.told()
	for _, one := range unjoin(err) {
		var wrong *headgate.RuleError
		if !errors.As(one, &wrong) || wrong.Index < 0 || wrong.Index >= len(r.rules) {
			r.report.add(0, &Error{File: r.sources[0].name, Line: 1, Column: 1, Problem: one.Error()})
			continue
		}
		rule := r.rules[wrong.Index]
		if !told[rule].covers(wrong.Path) {
			r.report.add(rule.source, r.place(rule, wrong))
		}
	}
}

// place finds what package headgate is talking about.
func (r *reader) place(rule *readRule, wrong *headgate.RuleError) *Error {
	at := rule.node.find(wrong.Path)
	if n := len(wrong.Path); n > 0 {
		last, ok := rule.node.at(wrong.Path[:n-1]).get(wrong.Path[n-1])
		if closer := rule.node.at(wrong.Path).closest(wrong.Problem); closer != nil {
			at = closer
		} else if ok && strings.Contains(wrong.Problem, strconv.Quote(wrong.Path[n-1])) {
			at = last.key
		}
	}
	problem := sentence(wrong)
	if wrong.Other >= 0 && wrong.Other < len(r.rules) {
		other := r.rules[wrong.Other]
		place := other.node.find([]string{"id"})
		problem += fmt.Sprintf("; the other one is at %s:%d:%d", r.sources[other.source].name, place.line, place.column)
	}
	return &Error{File: r.sources[rule.source].name, Line: at.line, Column: at.column, Rule: rule.ID, Problem: problem}
}

// sentence puts what is wrong before what is wrong with it: "by is missing", "limit: a count of 0 is out of bounds".
func sentence(wrong *headgate.RuleError) string {
	what := strings.Join(wrong.Path, ".")
	if what == "" {
		what = "the rule"
	}
	if m := noAttribute.FindStringSubmatch(wrong.Problem); m != nil {
		if near := nearest(m[1], headgate.BuiltIn()); near != "" {
			return fmt.Sprintf("%s: there is no attribute %q; did you mean %s?", what, m[1], near)
		}
	}
	switch verb, _, _ := strings.Cut(wrong.Problem, " "); verb {
	case "is", "has", "names", "picks", "asks":
		return what + " " + wrong.Problem
	}
	return what + ": " + wrong.Problem
}

var noAttribute = regexp.MustCompile(`^there is no attribute "([^"]*)"`)

// closest is the item of a list that a problem quotes, or the value of the key that it speaks of, or nil.
func (n *node) closest(problem string) *node {
	for _, item := range n.items {
		if item.kind == text && item.text != "" && strings.Contains(problem, strconv.Quote(item.text)) {
			return item
		}
	}
	var best *node
	longest := 0
	for _, e := range n.entries {
		word := strings.ReplaceAll(e.key.text, "_", " ")
		if len(word) > longest && strings.Contains(problem, word) {
			best, longest = e.value, len(word)
		}
	}
	return best
}

func unjoin(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return []error{err}
}

// toldKeys are the keys of a rule about which something was said already. What package headgate says of them, or of
// what hangs on them, would be said of a value that nobody wrote.
type toldKeys map[string]bool

// together are keys that are judged together.
var together = [][]string{
	{"limit", "limits", "algorithm", "tiers", "candidate", "max_delay"},
	{"by", "enforce_percent"},
}

func (t toldKeys) covers(path []string) bool {
	if len(t) == 0 || len(path) == 0 {
		return len(t) > 0
	}
	for _, keys := range together {
		if slices.Contains(keys, path[0]) {
			return slices.ContainsFunc(keys, func(key string) bool { return t[key] })
		}
	}
	return t[path[0]]
}

// told finds the rules and keys in which the problems so far are.
func (r *reader) told() map[*readRule]toldKeys {
	all := map[*readRule]toldKeys{}
	for _, e := range r.report.found {
		i, _ := slices.BinarySearchFunc(r.rules, e, func(rule *readRule, e located) int {
			return cmp.Or(cmp.Compare(rule.source, e.source), comparePlace(rule.node, e.Error), -1)
		})
		if i == 0 || r.rules[i-1].source != e.source {
			continue
		}
		rule := r.rules[i-1]
		if all[rule] == nil {
			all[rule] = toldKeys{"": true}
		}
		j, _ := slices.BinarySearchFunc(rule.node.entries, e, func(one entry, e located) int {
			return cmp.Or(comparePlace(one.key, e.Error), -1)
		})
		if j > 0 {
			key := rule.node.entries[j-1].key.text
			all[rule][key] = true
			all[rule][nearest(key, keysOf(ruleFields))] = true
		}
	}
	return all
}

func comparePlace(n *node, e *Error) int {
	return cmp.Or(cmp.Compare(n.line, e.Line), cmp.Compare(n.column, e.Column))
}
