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
	"github.com/headgate/headgate/internal/yamldoc"
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
			r.report.Add(0, &yamldoc.Error{File: r.sources[0].Name, Line: 1, Column: 1, Problem: one.Error()})
			continue
		}
		rule := r.rules[wrong.Index]
		if !told[rule].covers(wrong.Path) {
			r.report.Add(rule.source, r.place(rule, wrong))
		}
	}
}

// place finds what package headgate is talking about.
func (r *reader) place(rule *readRule, wrong *headgate.RuleError) *yamldoc.Error {
	at := rule.node.Find(wrong.Path)
	if n := len(wrong.Path); n > 0 {
		last, ok := rule.node.At(wrong.Path[:n-1]).Get(wrong.Path[n-1])
		if closer := closest(rule.node.At(wrong.Path), wrong.Problem); closer != nil {
			at = closer
		} else if ok && strings.Contains(wrong.Problem, strconv.Quote(wrong.Path[n-1])) {
			at = last.Key
		}
	}
	problem := wrong.Problem
	if len(wrong.Path) > 0 {
		problem = sentence(strings.Join(wrong.Path, "."), problem)
	}
	if wrong.Other >= 0 && wrong.Other < len(r.rules) {
		other := r.rules[wrong.Other]
		place := other.node.Find([]string{"id"})
		problem += fmt.Sprintf("; the other one is at %s:%d:%d", r.sources[other.source].Name, place.Line, place.Column)
	}
	file := r.sources[rule.source].Name
	return &yamldoc.Error{File: file, Line: at.Line, Column: at.Column, In: rule.ID, Problem: problem}
}

// sentence puts what is wrong before what is wrong with it: "by is missing", "limit: a count of 0 is out of bounds".
func sentence(what, problem string) string {
	if m := noAttribute.FindStringSubmatch(problem); m != nil {
		if near := yamldoc.Nearest(m[1], headgate.BuiltIn()); near != "" {
			return fmt.Sprintf("%s: there is no attribute %q; did you mean %s?", what, m[1], near)
		}
	}
	switch verb, _, _ := strings.Cut(problem, " "); verb {
	case "is", "has", "names", "picks", "asks":
		return what + " " + problem
	}
	return what + ": " + problem
}

var noAttribute = regexp.MustCompile(`^unknown attribute "([^"]*)"`)

// closest is the item of a list that a problem quotes, or the value of the key that it speaks of, or nil.
func closest(n *node, problem string) *node {
	for _, item := range n.Items {
		if item.Kind == yamldoc.Text && item.Text != "" && strings.Contains(problem, strconv.Quote(item.Text)) {
			return item
		}
	}
	var best *node
	longest := 0
	for _, e := range n.Entries {
		word := strings.ReplaceAll(e.Key.Text, "_", " ")
		if len(word) > longest && strings.Contains(problem, word) {
			best, longest = e.Value, len(word)
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

func (t toldKeys) covers(path []string) bool {
	if len(t) == 0 || len(path) == 0 {
		return len(t) > 0
	}
	with := ruleKeys.judgedWith(path[0])
	return slices.ContainsFunc(ruleKeys.fields, func(f field[readRule]) bool { return t[f.key] && ruleKeys.judgedWith(f.key) == with })
}

// told finds the rules and keys in which the problems so far are.
func (r *reader) told() map[*readRule]toldKeys {
	all := map[*readRule]toldKeys{}
	for _, e := range r.report.Found() {
		i, _ := slices.BinarySearchFunc(r.rules, e, func(rule *readRule, e yamldoc.Located) int {
			return cmp.Or(cmp.Compare(rule.source, e.Source), comparePlace(rule.node, e.Error), -1)
		})
		if i == 0 || r.rules[i-1].source != e.Source {
			continue
		}
		rule := r.rules[i-1]
		if all[rule] == nil {
			all[rule] = toldKeys{"": true}
		}
		j, _ := slices.BinarySearchFunc(rule.node.Entries, e, func(one entry, e yamldoc.Located) int {
			return cmp.Or(comparePlace(one.Key, e.Error), -1)
		})
		if j > 0 {
			key := rule.node.Entries[j-1].Key.Text
			all[rule][key] = true
			all[rule][yamldoc.Nearest(key, ruleKeys.keys())] = true
		}
	}
	return all
}

func comparePlace(n *node, e *yamldoc.Error) int {
	return cmp.Or(cmp.Compare(n.Line, e.Line), cmp.Compare(n.Column, e.Column))
}
