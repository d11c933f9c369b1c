package yamldoc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Decoder converts the nodes of one source to Go values and reports all problems found. A package that decodes documents
// embeds it in its own decoder. Each method that takes a key uses it to name the value in errors.
type Decoder struct {
	Source Source
	Number int // index of the source, passed to Report
	Report *Report
	// In names the part of the document that is being decoded; it becomes Error.In.
	In string
	// NoValue maps a key to the remedy that is reported if the key has no value. Other keys get a general remedy.
	NoValue map[string]string
}

// Bad reports a problem at a node.
func (d *Decoder) Bad(n *Node, format string, args ...any) {
	d.BadAt(n.Line, n.Column, fmt.Sprintf(format, args...))
}

// BadAt reports a problem at a position.
func (d *Decoder) BadAt(line, column int, problem string) {
	d.Report.Add(d.Number, &Error{File: d.Source.Name, Line: line, Column: column, In: d.In, Problem: problem})
}

// HasValue reports whether an entry has a value. If not, it adds an error.
func (d *Decoder) HasValue(e Entry) bool {
	if e.Value.Kind != Null {
		return true
	}
	remedy := d.NoValue[e.Key.Text]
	if remedy == "" {
		remedy = "add one, or remove the key"
	}
	d.Bad(e.Key, "%s: no value: %s", Shorten(e.Key.Text), remedy)
	return false
}

func (d *Decoder) unknown(key *Node, what string, known []string) {
	if d.Report.count >= maxFound {
		d.Bad(key, "unknown key") // counted but never shown
		return
	}
	if near := Nearest(key.Text, known); near != "" {
		d.Bad(key, "unknown key %q; did you mean %q?", Shorten(key.Text), near)
		return
	}
	d.Bad(key, "unknown key %q; valid keys of %s: %s", Shorten(key.Text), what, strings.Join(known, ", "))
}

// Text decodes a text. It returns false and adds an error if n is anything else.
func (d *Decoder) Text(n *Node, key string) (string, bool) {
	switch n.Kind {
	case Text:
		return n.Text, true
	case Number:
		d.Bad(n, "%s: must be text, but YAML reads %s as a number: write %q with quotes", key, n.Text, n.Text)
	case Boolean:
		d.Bad(n, "%s: must be text, but YAML reads %s as a boolean: write %q with quotes", key, n.Text, n.Text)
	default:
		d.Bad(n, "%s: must be text, not %s", key, n.Describe())
	}
	return "", false
}

// Texts decodes a text or a list of texts. The result is never nil.
func (d *Decoder) Texts(n *Node, key string) []string {
	all, items := []string{}, []*Node{n}
	switch n.Kind {
	case Mapping:
		d.Bad(n, "%s: must be text or a list, not %s", key, n.Describe())
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

// Int decodes an integer of at least minimum. Remedy, if not empty, ends the error about a smaller one.
func (d *Decoder) Int(n *Node, key string, minimum int64, remedy string) int64 {
	digits := strings.ReplaceAll(n.Text, "_", "")
	v, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case n.Kind == Text && isDigits(digits):
		d.Bad(n, "%s: must be a number: write %s without quotes", key, n.Text)
	case n.Kind != Number || err != nil:
		d.Bad(n, "%s: must be a whole number, not %s", key, n.Describe())
	case v < minimum && remedy != "":
		d.Bad(n, "%s %d: %s", key, v, remedy)
	case v < minimum:
		d.Bad(n, "%s %d: must be %d or more", key, v, minimum)
	default:
		return v
	}
	return 0
}

// Bool decodes true or false.
func (d *Decoder) Bool(n *Node, key string) bool {
	switch n.Kind {
	case Boolean:
		return strings.EqualFold(n.Text, "true")
	case Text:
		d.Bad(n, "%s: must be true or false without quotes, not %q", key, Shorten(n.Text))
	default:
		d.Bad(n, "%s: must be true or false, not %s", key, n.Describe())
	}
	return false
}

// Enum decodes one of the words and returns its index. It returns -1 and adds an error if n is anything else.
func (d *Decoder) Enum(n *Node, key string, words []string) int {
	if i := slices.Index(words, n.Text); i >= 0 && n.Kind == Text {
		return i
	}
	// YAML 1.1 reads an unquoted off as false, and some tools write it that way.
	if n.Kind == Boolean {
		d.Bad(n, "%s: must be one of %s, not %s", key, strings.Join(words, ", "), n.Text)
	} else if near := Nearest(n.Text, words); n.Kind == Text && near != "" {
		d.Bad(n, "%s: must be one of %s, not %q; did you mean %s?", key, strings.Join(words, ", "), Shorten(n.Text), near)
	} else {
		d.Bad(n, "%s: must be one of %s, not %s", key, strings.Join(words, ", "), n.Describe())
	}
	return -1
}

// Duration decodes a duration in Go's syntax: 500ms, 2s or 1m30s.
func (d *Decoder) Duration(n *Node, key string) time.Duration {
	if n.Kind == Number {
		d.Bad(n, "%s: %s has no unit: write %ss, %sms or %sm", key, n.Text, n.Text, n.Text, n.Text)
		return 0
	}
	s, ok := d.Text(n, key)
	if !ok {
		return 0
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		d.Bad(n, "%s: must be a duration like 500ms, 2s or 1m30s, not %q", key, Shorten(s))
	}
	return v
}

// Time decodes a time in RFC 3339.
func (d *Decoder) Time(n *Node, key string) time.Time {
	s, ok := d.Text(n, key)
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err == nil {
		return t
	}
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		d.Bad(n, "%s: must have a time and a time zone: write %s for midnight UTC of that day", key,
			day.Format(time.RFC3339))
	} else {
		d.Bad(n, "%s: must be a time like 2026-12-04T18:00:00Z or 2026-12-04T18:00:00+01:00, not %q", key, Shorten(s))
	}
	return time.Time{}
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
