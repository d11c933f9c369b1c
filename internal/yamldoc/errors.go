package yamldoc

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors holds all problems of the parsed files, ordered by file and line.
type Errors []*Error

// Error is one problem and its position.
type Error struct {
	// File, Line and Column are the position. Line and Column start at 1; Column counts characters.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// In names the part of the document that has the problem, if the decoder set Decoder.In.
	In string `json:"in,omitempty"`
	// Problem describes the problem and its remedy.
	Problem string `json:"problem"`
	// Excerpt is the line (for a long line, the part around Column) and, below it, a line with a ^ under Column.
	Excerpt string `json:"excerpt,omitempty"`
}

// Error returns all problems, one below the other, each with its excerpt.
func (e Errors) Error() string { return JoinText(e) }

// Unwrap returns the problems, so that errors.As finds them.
func (e Errors) Unwrap() []error { return AsErrors(e) }

// JoinText returns the messages of errors, one below the other.
func JoinText[E error](all []E) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "\n")
}

// AsErrors converts a slice of a concrete error type to a slice of errors.
func AsErrors[E error](all []E) []error {
	list := make([]error, len(all))
	for i, one := range all {
		list[i] = one
	}
	return list
}

// Error formats the problem like a compiler does: position and problem, then the excerpt.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Problem)
	if e.Excerpt == "" {
		return text
	}
	return text + "\n    | " + strings.ReplaceAll(e.Excerpt, "\n", "\n    | ")
}

// Bounds of an excerpt, because a whole JSON file may be one line.
const (
	excerptWidth  = 110
	excerptBefore = 60
)

// excerpt returns the part of a line around a column, with a mark below the column. It reads no more of the line than it returns.
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
