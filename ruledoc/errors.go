package ruledoc

import (
	"fmt"

	"github.com/headgate/headgate/internal/yamldoc"
)

// Errors is everything that is wrong with rule files, in the order of file and line.
type Errors []*Error

// Error is one problem after another, each with its line and a mark under the place.
func (e Errors) Error() string { return yamldoc.JoinText(e) }

// Unwrap lets errors.As find each of them.
func (e Errors) Unwrap() []error { return yamldoc.AsErrors(e) }

// Error is one thing that is wrong, and where.
type Error struct {
	// File, Line and Column say where; lines and columns begin with 1, and columns count characters.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Rule is the ID of the rule that the problem is in, if it is in one and that one has an ID.
	Rule string `json:"rule,omitempty"`
	// Problem says what is wrong and what to write instead.
	Problem string `json:"problem"`
	// Excerpt is the line, or of a long one the part around the place, and below it a line with a mark under the place.
	Excerpt string `json:"excerpt,omitempty"`
}

// Error reads like a compiler's: the place, the rule and the problem, then the line and a mark under the place.
func (e *Error) Error() string {
	problem := e.Problem
	if e.Rule != "" {
		problem = fmt.Sprintf("rule %q: %s", e.Rule, problem)
	}
	return (&yamldoc.Error{File: e.File, Line: e.Line, Column: e.Column, Problem: problem, Excerpt: e.Excerpt}).Error()
}

// errorsOf are the problems of sources as this package reports them, or nil.
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
