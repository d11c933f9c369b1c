package ruledoc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// decoder turns the nodes of one source into rules, and notes everything that is wrong with them.
type decoder struct {
	source source
	number int // of the source
	report *report
	rule   string // the ID of the rule that is being read
	known  *known
}

// known is what takes long to make, and is the same wherever a document has it.
type known struct {
	conditions map[string]headgate.Condition
	zones      map[string]*time.Location
}

// bad notes a problem at a node.
func (d *decoder) bad(n *node, format string, args ...any) {
	d.badAt(n.line, n.column, fmt.Sprintf(format, args...))
}

func (d *decoder) badAt(line, column int, problem string) {
	d.report.add(d.number, &Error{File: d.source.name, Line: line, Column: column, Rule: d.rule, Problem: problem})
}

// field is a key of a mapping and how its value is read. The tables of fields are what the schema is tested against.
type field[T any] struct {
	key  string
	read func(d *decoder, n *node, key string, into *T)
}

// fields reads a mapping by a table. What is the mapping in errors.
func fields[T any](d *decoder, n *node, what string, table []field[T], into *T) {
	if n.kind != mapping {
		d.bad(n, "%s wants keys and values, not %s", what, describe(n))
		return
	}
	for _, e := range n.entries {
		if f := lookUp(table, e.key.text); f != nil {
			if d.given(e) {
				f.read(d, e.value, e.key.text, into)
			}
			continue
		}
		d.unknown(e.key, what, keysOf(table))
	}
}

func lookUp[T any](table []field[T], key string) *field[T] {
	for i := range table {
		if table[i].key == key {
			return &table[i]
		}
	}
	return nil
}

func keysOf[T any](table []field[T]) []string {
	keys := make([]string, len(table))
	for i, f := range table {
		keys[i] = f.key
	}
	return keys
}

// given says whether an entry has a value, and notes it if not.
func (d *decoder) given(e entry) bool {
	switch {
	case e.value.kind != nothing:
		return true
	case e.key.text == "by":
		d.bad(e.key, "by has no value: write by: [ip] to count each address, or by: [] for one counter for everybody")
	default:
		d.bad(e.key, "%s has no value: write one, or remove the key", shorten(e.key.text))
	}
	return false
}

func (d *decoder) unknown(key *node, what string, known []string) {
	if d.report.count >= maxFound {
		d.bad(key, "unknown key") // which nobody will see
		return
	}
	if near := nearest(key.text, known); near != "" {
		d.bad(key, "unknown key %q; did you mean %q?", shorten(key.text), near)
		return
	}
	d.bad(key, "unknown key %q; %s has %s", shorten(key.text), what, strings.Join(known, ", "))
}

// text reads a value that must be text.
func (d *decoder) text(n *node, key string) (string, bool) {
	switch n.kind {
	case text:
		return n.text, true
	case number:
		d.bad(n, "%s wants text, and %s is a number to YAML: write %q, in quotes", key, n.text, n.text)
	case boolean:
		d.bad(n, "%s wants text, and YAML knows %s as a word of its own: write %q, in quotes", key, n.text, n.text)
	default:
		d.bad(n, "%s wants text, not %s", key, describe(n))
	}
	return "", false
}

// texts reads one text or a list of them. It is never nil.
func (d *decoder) texts(n *node, key string) []string {
	all := []string{}
	if n.kind != list {
		if n.kind == mapping {
			d.bad(n, "%s wants text or a list, not %s", key, describe(n))
		} else if s, ok := d.text(n, key); ok {
			all = append(all, s)
		}
		return all
	}
	for _, item := range n.items {
		if s, ok := d.text(item, key); ok {
			all = append(all, s)
		}
	}
	return all
}

// whole reads a whole number of at least least; a smaller one is explained by why.
func (d *decoder) whole(n *node, key string, least int64, why string) int64 {
	digits := strings.ReplaceAll(n.text, "_", "")
	v, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case n.kind == text && isDigits(digits):
		d.bad(n, "%s wants a number: write %s, without quotes", key, n.text)
	case n.kind != number || err != nil:
		d.bad(n, "%s wants a whole number, not %s", key, describe(n))
	case v < least && why != "":
		d.bad(n, "%s: %s", key, why)
	case v < least:
		d.bad(n, "%s is %d: write %d or more", key, v, least)
	default:
		return v
	}
	return 0
}

func (d *decoder) yesNo(n *node, key string) bool {
	switch n.kind {
	case boolean:
		return strings.EqualFold(n.text, "true")
	case text:
		d.bad(n, "%s wants true or false, without quotes, not %q", key, shorten(n.text))
	default:
		d.bad(n, "%s wants true or false, not %s", key, describe(n))
	}
	return false
}

// choose reads one of the words, or returns -1.
func (d *decoder) choose(n *node, key string, words []string) int {
	for i, word := range words {
		if n.kind == text && n.text == word {
			return i
		}
	}
	// Older YAML reads a bare off as false, and some tools write it so.
	if n.kind == boolean {
		d.bad(n, "%s is one of %s, not %s", key, strings.Join(words, ", "), n.text)
	} else if near := nearest(n.text, words); n.kind == text && near != "" {
		d.bad(n, "%s is one of %s, not %q; did you mean %s?", key, strings.Join(words, ", "), shorten(n.text), near)
	} else {
		d.bad(n, "%s is one of %s, not %s", key, strings.Join(words, ", "), describe(n))
	}
	return -1
}

func (d *decoder) duration(n *node, key string) time.Duration {
	if n.kind == number {
		d.bad(n, "%s: %s what? write %ss, %sms or %sm", key, n.text, n.text, n.text, n.text)
		return 0
	}
	s, ok := d.text(n, key)
	if !ok {
		return 0
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		d.bad(n, "%s wants a duration like 500ms, 2s or 1m30s, not %q", key, shorten(s))
	}
	return v
}

func (d *decoder) instant(n *node, key string) time.Time {
	s, ok := d.text(n, key)
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err == nil {
		return t
	}
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		d.bad(n, "%s wants the time too, and where: write %s for the beginning of that day in UTC", key,
			day.Format(time.RFC3339))
	} else {
		d.bad(n, "%s wants a time like 2026-12-04T18:00:00Z or 2026-12-04T18:00:00+01:00, not %q", key, shorten(s))
	}
	return time.Time{}
}

// describe is a value in errors.
func describe(n *node) string {
	switch n.kind {
	case text:
		return strconv.Quote(shorten(n.text))
	case number, boolean:
		return shorten(n.text)
	}
	return n.kind.String()
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// nearest is the one of the words that a typing mistake may have meant, or "".
func nearest(s string, words []string) string {
	if len(s) > 40 {
		return ""
	}
	best, least := "", 1+min(2, len(s)/3)
	for _, word := range words {
		if n := distance(strings.ToLower(s), word); n < least {
			best, least = word, n
		}
	}
	return best
}

// distance is how many letters must be added, removed, changed or swapped with their neighbour to make a into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
