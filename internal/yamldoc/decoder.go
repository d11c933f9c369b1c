package yamldoc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Decoder turns the nodes of one source into values, and notes everything that is wrong with them. Who reads documents
// of some kind embeds it in a decoder of their own.
type Decoder struct {
	Source Source
	Number int // of the source, for Report
	Report *Report
	// In names the part of the document that is being read, for Error.In.
	In string
	// NoValue says what to write for keys of which more can be said than that a value is missing.
	NoValue map[string]string
}

// Bad notes a problem at a node.
func (d *Decoder) Bad(n *Node, format string, args ...any) {
	d.BadAt(n.Line, n.Column, fmt.Sprintf(format, args...))
}

// BadAt notes a problem at a place.
func (d *Decoder) BadAt(line, column int, problem string) {
	d.Report.Add(d.Number, &Error{File: d.Source.Name, Line: line, Column: column, In: d.In, Problem: problem})
}

// Given says whether an entry has a value, and notes it if not.
func (d *Decoder) Given(e Entry) bool {
	if e.Value.Kind != Nothing {
		return true
	}
	write := d.NoValue[e.Key.Text]
	if write == "" {
		write = "write one, or remove the key"
	}
	d.Bad(e.Key, "%s has no value: %s", Shorten(e.Key.Text), write)
	return false
}

func (d *Decoder) unknown(key *Node, what string, known []string) {
	if d.Report.count >= maxFound {
		d.Bad(key, "unknown key") // which nobody will see
		return
	}
	if near := Nearest(key.Text, known); near != "" {
		d.Bad(key, "unknown key %q; did you mean %q?", Shorten(key.Text), near)
		return
	}
	d.Bad(key, "unknown key %q; %s has %s", Shorten(key.Text), what, strings.Join(known, ", "))
}

// Text reads a value that must be text.
func (d *Decoder) Text(n *Node, key string) (string, bool) {
	switch n.Kind {
	case Text:
		return n.Text, true
	case Number:
		d.Bad(n, "%s wants text, and %s is a number to YAML: write %q, in quotes", key, n.Text, n.Text)
	case Boolean:
		d.Bad(n, "%s wants text, and YAML knows %s as a word of its own: write %q, in quotes", key, n.Text, n.Text)
	default:
		d.Bad(n, "%s wants text, not %s", key, n.Describe())
	}
	return "", false
}

// Texts reads one text or a list of them. It is never nil.
func (d *Decoder) Texts(n *Node, key string) []string {
	all, items := []string{}, []*Node{n}
	switch n.Kind {
	case Mapping:
		d.Bad(n, "%s wants text or a list, not %s", key, n.Describe())
		return all
	case List:
		items = n.Items
	}
	for _, item := range items {
		if s, ok := d.Text(item, key); ok {
			all = append(all, s)
		}
	}
	return all
}

// Whole reads a whole number of at least least; a smaller one is explained by why.
func (d *Decoder) Whole(n *Node, key string, least int64, why string) int64 {
	digits := strings.ReplaceAll(n.Text, "_", "")
	v, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case n.Kind == Text && isDigits(digits):
		d.Bad(n, "%s wants a number: write %s, without quotes", key, n.Text)
	case n.Kind != Number || err != nil:
		d.Bad(n, "%s wants a whole number, not %s", key, n.Describe())
	case v < least && why != "":
		d.Bad(n, "%s: %s", key, why)
	case v < least:
		d.Bad(n, "%s is %d: write %d or more", key, v, least)
	default:
		return v
	}
	return 0
}

// YesNo reads true or false.
func (d *Decoder) YesNo(n *Node, key string) bool {
	switch n.Kind {
	case Boolean:
		return strings.EqualFold(n.Text, "true")
	case Text:
		d.Bad(n, "%s wants true or false, without quotes, not %q", key, Shorten(n.Text))
	default:
		d.Bad(n, "%s wants true or false, not %s", key, n.Describe())
	}
	return false
}

// Choose reads one of the words, or returns -1.
func (d *Decoder) Choose(n *Node, key string, words []string) int {
	if i := slices.Index(words, n.Text); i >= 0 && n.Kind == Text {
		return i
	}
	// Older YAML reads a bare off as false, and some tools write it so.
	if n.Kind == Boolean {
		d.Bad(n, "%s is one of %s, not %s", key, strings.Join(words, ", "), n.Text)
	} else if near := Nearest(n.Text, words); n.Kind == Text && near != "" {
		d.Bad(n, "%s is one of %s, not %q; did you mean %s?", key, strings.Join(words, ", "), Shorten(n.Text), near)
	} else {
		d.Bad(n, "%s is one of %s, not %s", key, strings.Join(words, ", "), n.Describe())
	}
	return -1
}

// Duration reads 500ms, 2s or 1m30s.
func (d *Decoder) Duration(n *Node, key string) time.Duration {
	if n.Kind == Number {
		d.Bad(n, "%s: %s what? write %ss, %sms or %sm", key, n.Text, n.Text, n.Text, n.Text)
		return 0
	}
	s, ok := d.Text(n, key)
	if !ok {
		return 0
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		d.Bad(n, "%s wants a duration like 500ms, 2s or 1m30s, not %q", key, Shorten(s))
	}
	return v
}

// Instant reads a time of RFC 3339.
func (d *Decoder) Instant(n *Node, key string) time.Time {
	s, ok := d.Text(n, key)
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err == nil {
		return t
	}
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		d.Bad(n, "%s wants the time too, and where: write %s for the beginning of that day in UTC", key,
			day.Format(time.RFC3339))
	} else {
		d.Bad(n, "%s wants a time like 2026-12-04T18:00:00Z or 2026-12-04T18:00:00+01:00, not %q", key, Shorten(s))
	}
	return time.Time{}
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
