package yamldoc

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors is everything that is wrong with files, in the order of file and line.
type Errors []*Error

// Error is one thing that is wrong, and where.
type Error struct {
	// File, Line and Column say where; lines and columns begin with 1, and columns count characters.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// In is the part of the document that the problem is in, if its decoder named one.
	In string `json:"in,omitempty"`
	// Problem says what is wrong and what to write instead.
	Problem string `json:"problem"`
	// Excerpt is the line, or of a long one the part around the place, and below it a line with a mark under the place.
	Excerpt string `json:"excerpt,omitempty"`
}

// Error is one problem after another, each with its line and a mark under the place.
func (e Errors) Error() string { return Lines(e) }

// Unwrap lets errors.As find each of them.
func (e Errors) Unwrap() []error { return Each(e) }

// Lines returns the texts of errors, one below the other.
func Lines[E error](all []E) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "\n")
}

// Each returns errors of one type as errors.
func Each[E error](all []E) []error {
	list := make([]error, len(all))
	for i, one := range all {
		list[i] = one
	}
	return list
}

// Error reads like a compiler's: the place and the problem, then the line and a mark under the place.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Problem)
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
