package ruledoc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// compile compiles the rules and reports the errors of package headgate with their positions.
func (r *reader) compile(compile func(...headgate.Rule) (*headgate.RuleSet, error)) {
	if r.broken {
		compile = compileAlone // the rules of another source may be missing
	}
	rules := make([]headgate.Rule, len(r.rules))
	for i, rule := range r.rules {
		rules[i] = rule.Rule
	}
	set, err := compile(rules...)
	if err == nil {
		r.document.Source, r.document.Rules = rules, set.WithMode(r.document.Mode)
		return
	}
	reported := r.reported()
	for _, one := range unjoin(err) {
		var ruleErr *headgate.RuleError
		if !errors.As(one, &ruleErr) || ruleErr.Index < 0 || ruleErr.Index >= len(r.rules) {
			r.report.Add(0, &yamldoc.Error{File: r.sources[0].Name, Line: 1, Column: 1, Problem: one.Error()})
			continue
		}
		rule := r.rules[ruleErr.Index]
		if !reported[rule].covers(ruleErr.Path) {
			r.report.Add(rule.source, r.position(rule, ruleErr))
		}
	}
}

// compileAlone compiles rules without the rules whose counters they charge. Others stand in for them, which grant any cost.
func compileAlone(rules ...headgate.Rule) (*headgate.RuleSet, error) {
	known := map[string]bool{}
	for i := range rules {
		known[rules[i].ID] = true
	}
	all := slices.Clone(rules)
	for i := range rules {
		if id := rules[i].Counter; id != "" && !known[id] {
			known[id] = true
			limit := headgate.Limit{Algorithm: headgate.FixedWindow, Count: headgate.MaxCost, Window: time.Hour}
			all = append(all, headgate.Rule{ID: id, By: headgate.Global, Limit: limit})
		}
	}
	set, err := headgate.Compile(all...)
	if err == nil {
		return set, nil
	}
	return nil, errors.Join(slices.DeleteFunc(unjoin(err), func(err error) bool {
		ruleErr, ok := errors.AsType[*headgate.RuleError](err)
		return ok && ruleErr.Index >= len(rules) // the rule that charges the counters has an error for its id as well
	})...)
}

// position returns a rule's error with the position of the key or value that it is about.
func (r *reader) position(rule *parsedRule, ruleErr *headgate.RuleError) *yamldoc.Error {
	at := rule.node.Find(ruleErr.Path)
	if n := len(ruleErr.Path); n > 0 {
		last, ok := rule.node.At(ruleErr.Path[:n-1]).Get(ruleErr.Path[n-1])
		if closer := closest(rule.node.At(ruleErr.Path), ruleErr.Problem); closer != nil {
			at = closer
		} else if ok && strings.Contains(ruleErr.Problem, strconv.Quote(ruleErr.Path[n-1])) {
			at = last.Key
		}
	}
	problem := ruleErr.Problem
	if len(ruleErr.Path) > 0 {
		problem = describeProblem(strings.Join(ruleErr.Path, "."), problem)
	}
	if slices.Equal(ruleErr.Path, []string{"counter"}) && r.ids[rule.Counter] == nil {
		if near := yamldoc.Nearest(rule.Counter, slices.Sorted(maps.Keys(r.ids))); near != "" && near != rule.ID {
			problem = fmt.Sprintf("counter: %s; did you mean %q?", ruleNotFound(rule.Counter), near)
		}
	}
	if ruleErr.Other >= 0 && ruleErr.Other < len(r.rules) {
		other := r.rules[ruleErr.Other]
		position := other.node.Find([]string{"id"})
		problem += fmt.Sprintf("; the other rule is at %s:%d:%d", r.sources[other.source].Name, position.Line, position.Column)
	}
	file := r.sources[rule.source].Name
	return &yamldoc.Error{File: file, Line: at.Line, Column: at.Column, In: rule.ID, Problem: problem}
}

// describeProblem prefixes a problem of package headgate with its field: "limit: …", or "priority -1: …" if the problem begins
// with the field's value.
func describeProblem(field, problem string) string {
	if m := unknownAttribute.FindStringSubmatch(problem); m != nil {
		if near := yamldoc.Nearest(m[1], headgate.BuiltIn()); near != "" {
			return fmt.Sprintf("%s: unknown attribute %q; did you mean %s?", field, m[1], near)
		}
	}
	if beginsWithNumber.MatchString(problem) {
		return field + " " + problem
	}
	return field + ": " + problem
}

var (
	unknownAttribute = regexp.MustCompile(`^unknown attribute "([^"]*)"`)
	beginsWithNumber = regexp.MustCompile(`^-?[0-9][^ ]*: `)
)

// closest returns the item of a list that a problem quotes, or the value of the key that it mentions, or nil.
func closest(n *node, problem string) *node {
	for _, item := range n.Items {
		if item.Kind == yamldoc.Text && item.Text != "" && strings.Contains(problem, strconv.Quote(item.Text)) {
			return item
		}
	}
	var best *node
	longest := 0
	problem = strings.ReplaceAll(problem, "_", " ")
	for _, e := range n.Entries {
		word := strings.ReplaceAll(e.Key.Text, "_", " ")
		if len(word) > longest && strings.Contains(problem, word) {
			best, longest = e.Value, len(word)
		}
	}
	return best
}

// unjoin returns the errors of errors.Join.
func unjoin(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return []error{err}
}

// reportedKeys are the keys of a rule that already have errors. The value of such a key was not decoded, so errors of
// package headgate about the key or its group would be misleading.
type reportedKeys map[string]bool

// covers reports whether an error at this path is already covered by a reported one.
func (t reportedKeys) covers(path []string) bool {
	if len(t) == 0 || len(path) == 0 {
		return len(t) > 0
	}
	group := ruleKeys.groupOf(path[0])
	return slices.ContainsFunc(ruleKeys.fields, func(f field[parsedRule]) bool { return t[f.key] && ruleKeys.groupOf(f.key) == group })
}

// reported returns the keys that have errors so far, by rule.
func (r *reader) reported() map[*parsedRule]reportedKeys {
	all := map[*parsedRule]reportedKeys{}
	for _, e := range r.report.Found() {
		i, _ := slices.BinarySearchFunc(r.rules, e, func(rule *parsedRule, e yamldoc.Located) int {
			return cmp.Or(cmp.Compare(rule.source, e.Source), comparePosition(rule.node, e.Error), -1)
		})
		if i == 0 || r.rules[i-1].source != e.Source {
			continue
		}
		rule := r.rules[i-1]
		if all[rule] == nil {
			all[rule] = reportedKeys{"": true}
		}
		j, _ := slices.BinarySearchFunc(rule.node.Entries, e, func(one entry, e yamldoc.Located) int {
			return cmp.Or(comparePosition(one.Key, e.Error), -1)
		})
		if j > 0 {
			key := rule.node.Entries[j-1].Key.Text
			all[rule][key] = true
			all[rule][yamldoc.Nearest(key, ruleKeys.keys())] = true
		}
	}
	return all
}

// comparePosition compares the position of a node with that of an error.
func comparePosition(n *node, e *yamldoc.Error) int {
	return cmp.Or(cmp.Compare(n.Line, e.Line), cmp.Compare(n.Column, e.Column))
}
