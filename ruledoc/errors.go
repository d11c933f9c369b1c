package ruledoc

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors is everything that is wrong with rule files, in the order of file and line.
type Errors []*Error

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

// Error is one problem after another, each with its line and a mark under the place.
func (e Errors) Error() string {
	var b strings.Builder
	for i, one := range e {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.Error())
	}
	return b.String()
}

// Unwrap lets errors.As find each of them.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, one := range e {
		list[i] = one
	}
	return list
}

// Error reads like a compiler's: the place, the rule and the problem, then the line and a mark under the place.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Rule != "" {
		text += fmt.Sprintf("rule %q: ", e.Rule)
	}
	text += e.Problem
	if e.Excerpt == "" {
		return text
	}
	return text + "\n    | " + strings.ReplaceAll(e.Excerpt, "\n", "\n    | ")
}

// Bounds of an excerpt: a JSON file may be one line.
const (
	excerptWidth  = 110
	excerptBefore = 60
)

// excerpt shows a place in a line. It looks only at the part that it shows.
func excerpt(line []byte, column int) string {
	at, cut := max(column-1, 0), ""
	if at > excerptBefore && len(line) > excerptWidth {
		for range at - excerptBefore {
			_, size := utf8.DecodeRune(line)
			line = line[size:]
		}
		at, cut = excerptBefore+1, "…"
	}
	shown := []rune(cut + string(line[:min(len(line), excerptWidth*utf8.UTFMax)]))
	if len(shown) > excerptWidth {
		shown = append(shown[:excerptWidth-1], '…')
	}
	for i, r := range shown {
		if r == '\t' {
			shown[i] = ' '
		} else if !unicode.IsPrint(r) {
			shown[i] = unicode.ReplacementChar
		}
	}
	return strings.TrimRight(string(shown), " ") + "\n" + strings.Repeat(" ", at) + "^"
}

// Bounds of what is reported: a file of another kind altogether would yield one problem for each of its lines.
const (
	maxErrors = 200  // that are told
	maxFound  = 1000 // that are remembered, to tell those that come first
)

// report collects what is wrong with several sources.
type report struct {
	found []located
	count int
}

type located struct {
	*Error
	source int // its number among the sources
}

func (r *report) add(source int, e *Error) {
	if r.count++; r.count <= maxFound {
		r.found = append(r.found, located{e, source})
	}
}

// errors are the problems in order, with their excerpts, or nil.
func (r *report) errors(sources []source) error {
	if r.count == 0 {
		return nil
	}
	slices.SortStableFunc(r.found, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	r.found = slices.CompactFunc(r.found, func(a, b located) bool { return *a.Error == *b.Error })
	r.found = r.found[:min(len(r.found), maxErrors)]
	lines := map[int][][]byte{}
	list := make(Errors, 0, len(r.found)+1)
	for _, e := range r.found {
		if lines[e.source] == nil {
			lines[e.source] = bytes.Split(sources[e.source].data, []byte("\n"))
		}
		// The tokenizer miscounts after some of its errors.
		e.Line = min(max(e.Line, 1), len(lines[e.source]))
		line := lines[e.source][e.Line-1]
		e.Column = min(max(e.Column, 1), utf8.RuneCount(line)+1)
		if len(line) > 0 {
			e.Excerpt = excerpt(line, e.Column)
		}
		list = append(list, e.Error)
	}
	if r.count > maxErrors && len(list) == maxErrors {
		last := list[maxErrors-1]
		more := fmt.Sprintf("and %d more problems after this one", r.count-maxErrors)
		list = append(list, &Error{File: last.File, Line: last.Line, Column: last.Column, Problem: more})
	}
	return list
}
