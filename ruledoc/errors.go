package ruledoc

import (
	"fmt"

	"github.com/headgate/headgate/internal/yamldoc"
)

// Errors holds all problems of the parsed files, ordered by file and line.
type Errors []*Error

// Error returns all problems, one below the other, each with its excerpt.
func (e Errors) Error() string { return yamldoc.JoinText(e) }

// Unwrap returns the problems, so that errors.As finds them.
func (e Errors) Unwrap() []error { return yamldoc.AsErrors(e) }

// Error is one problem and its position.
type Error struct {
	// File, Line and Column are the position. Line and Column start at 1; Column counts characters.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Rule is the ID of the rule that has the problem. It is empty outside of rules and if the rule has no ID.
	Rule string `json:"rule,omitempty"`
	// Problem describes the problem and its remedy.
	Problem string `json:"problem"`
	// Excerpt is the line (for a long line, the part around Column) and, below it, a line with a ^ under Column.
	Excerpt string `json:"excerpt,omitempty"`
}

// Error formats the problem like a compiler does: position, rule and problem, then the excerpt.
func (e *Error) Error() string {
	problem := e.Problem
	if e.Rule != "" {
		problem = fmt.Sprintf("rule %q: %s", e.Rule, problem)
	}
	return (&yamldoc.Error{File: e.File, Line: e.Line, Column: e.Column, Problem: problem, Excerpt: e.Excerpt}).Error()
}

// errorsOf returns the problems of a report as Errors, or nil.
func errorsOf(r *yamldoc.Report, sources []source) error {
	found := r.Errors(sources)
	if len(found) == 0 {
		return nil
	}
	list := make(Errors, len(found))
	for i, e := range found {
		list[i] = &Error{File: e.File, Line: e.Line, Column: e.Column, Rule: e.In, Problem: e.Problem, Excerpt: e.Excerpt}
	}
	return list
}
