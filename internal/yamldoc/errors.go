package yamldoc

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrorList is everything that is wrong with files, in the order of file and line.
type ErrorList[E error] []E

// Errors is an ErrorList of errors as this package finds them.
type Errors = ErrorList[*Error]

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
func (l ErrorList[E]) Error() string {
	var b strings.Builder
	for i, one := range l {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.Error())
	}
	return b.String()
}

// Unwrap lets errors.As find each of them.
func (l ErrorList[E]) Unwrap() []error {
	list := make([]error, len(l))
	for i, one := range l {
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
