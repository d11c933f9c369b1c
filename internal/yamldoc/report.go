package yamldoc

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Bounds of a report, because a file that is not YAML at all would have a problem on every line.
const (
	maxErrors = 200  // errors that are reported
	maxFound  = 1000 // errors that are stored, so that the first ones in file order can be reported
)

// Report collects the problems of several sources.
type Report struct {
	found []Located
	count int
}

// Located is an error with the index of its source.
type Located struct {
	*Error
	Source int
}

// Add adds a problem of the source with this index.
func (r *Report) Add(source int, e *Error) {
	if r.count++; r.count <= maxFound {
		r.found = append(r.found, Located{e, source})
	}
}

// Count returns the number of problems, including those that were not stored.
func (r *Report) Count() int { return r.count }

// Found returns the stored problems in the order in which they were added.
func (r *Report) Found() []Located { return r.found }

// Errors returns the problems in file order with their excerpts, or nil if there are none.
func (r *Report) Errors(sources []Source) Errors {
	if r.count == 0 {
		return nil
	}
	slices.SortStableFunc(r.found, func(a, b Located) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	r.found = slices.CompactFunc(r.found, func(a, b Located) bool { return *a.Error == *b.Error })
	r.found = r.found[:min(len(r.found), maxErrors)]
	lines := map[int][][]byte{}
	list := make(Errors, 0, len(r.found)+1)
	for _, e := range r.found {
		if lines[e.Source] == nil {
			lines[e.Source] = bytes.Split(sources[e.Source].Data, []byte("\n"))
		}
		// The tokenizer reports wrong positions after some of its errors.
		e.Line = min(max(e.Line, 1), len(lines[e.Source]))
		line := lines[e.Source][e.Line-1]
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
