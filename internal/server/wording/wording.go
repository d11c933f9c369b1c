// Package wording formats numbers, lists, attributes and tables for people, in the same way for the CLI and the APIs.
package wording

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/headgate/headgate"
)

// Count returns a number with its noun: "1 rule", "2 rules", "10,000 rules".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return Number(int64(n)) + " " + what
}

// Number formats a non-negative number with thousands separators.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// List joins words as in "a, b and c".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Attributes formats attributes as users type them: "ip=192.0.2.1 user=ann". An API key in clear text is replaced by its hash.
func Attributes(a headgate.Attributes) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		value := cmp.Or(a[name], "(none)")
		if name == "api_key" && a[name] != "" {
			value = headgate.EnsureKeyHash(value)
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, " ")
}

// Table aligns the columns of rows, each of which begins with the indent.
func Table(indent string, rows ...[]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(w, indent+strings.Join(row, "\t")+"\n") // writes to a strings.Builder do not fail
	}
	_ = w.Flush()
	return b.String()
}
