package storetest

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// words reads the words of a line. list has the words that are left, and err the first error.
type words struct {
	list []string
	err  error
}

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// next returns the next word; what describes it in errors.
func (w *words) next(what string) string {
	if len(w.list) == 0 {
		w.fail("expected %s, not the end of the line", what)
		return ""
	}
	word := w.list[0]
	w.list = w.list[1:]
	return word
}

// accept skips the next word if it is the given one, and reports whether it was.
func (w *words) accept(word string) bool {
	if len(w.list) == 0 || w.list[0] != word {
		return false
	}
	w.list = w.list[1:]
	return true
}

func (w *words) expect(word string) {
	if got := w.next(word); got != word {
		w.fail("expected %s, not %q", word, got)
	}
}

func (w *words) number() int64 { return w.parseNumber(w.next("a number")) }

func (w *words) parseNumber(word string) int64 {
	n, err := strconv.ParseInt(strings.ReplaceAll(word, "_", ""), 10, 64)
	if err != nil {
		w.fail("expected a number, not %q", word)
	}
	return n
}

func (w *words) span() time.Duration { return w.parseSpan(w.next("a time span")) }

// parseSpan parses a duration in Go's notation, and also days: 30d, 1d2h.
func (w *words) parseSpan(word string) time.Duration {
	rest := word
	var days int64
	if n, hours, found := strings.Cut(word, "d"); found {
		days, rest = w.parseNumber(n), "0"+hours
	}
	span, err := time.ParseDuration(rest)
	if span += time.Duration(days) * 24 * time.Hour; err != nil || span < 0 || span%time.Microsecond != 0 {
		w.fail("expected a time span in whole microseconds such as 5us, 1m30s or 30d, not %q", word)
	}
	return span
}

// time reads a time in RFC 3339, or a span since start.
func (w *words) time(start time.Time) time.Time {
	word := w.next("a time")
	t, err := time.Parse(time.RFC3339Nano, word)
	if err != nil {
		t = start.Add(w.parseSpan(word))
	}
	if t.Nanosecond()%1_000 != 0 || t.Before(firstTime) || t.After(lastTime) {
		w.fail("expected a time in whole microseconds from %d to %d, not %q", firstTime.Year(), lastTime.Year()-1, word)
	}
	return t.UTC()
}

// holder reads the name of a holder, or its number in hexadecimal: n1, 0xff.
func (w *words) holder() uint64 {
	word := w.next("a holder")
	if id, err := strconv.ParseUint(word, 0, 64); err == nil {
		return id
	}
	subject := headgate.SubjectOf("holder", word)
	return binary.LittleEndian.Uint64(subject[:])
}

// oneNamed reads the name of one of the values from first to last.
func oneNamed[T interface {
	~uint8
	fmt.Stringer
}](w *words, first, last T) T {
	word := w.next(first.String() + " or another up to " + last.String())
	for v := first; v <= last; v++ {
		if v.String() == word {
			return v
		}
	}
	w.fail("expected one of %s to %s, not %q", first, last, word)
	return first
}

func (w *words) zone() *time.Location {
	zone, err := time.LoadLocation(w.next("a time zone"))
	if err != nil {
		w.fail("%w", err)
	}
	return zone
}
