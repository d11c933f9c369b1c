package storetest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// words are what is left of a line. The first that is not what was expected leaves its error.
type words struct {
	list []string
	err  error
}

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *words) next(what string) string {
	if len(w.list) == 0 {
		w.fail("the line ends where %s is expected", what)
		return ""
	}
	word := w.list[0]
	w.list = w.list[1:]
	return word
}

func (w *words) accept(word string) bool {
	if len(w.list) == 0 || w.list[0] != word {
		return false
	}
	w.list = w.list[1:]
	return true
}

func (w *words) expect(word string) {
	if !w.accept(word) {
		w.fail("expected %q, not %q", word, w.next(strconv.Quote(word)))
	}
}

func (w *words) end() {
	if len(w.list) > 0 {
		w.fail("expected the end of the line, not %q", w.list[0])
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

func (w *words) span() int64 { return w.parseSpan(w.next("a time span")) }

func (w *words) parseSpan(word string) int64 {
	span, err := parseSpan(word)
	if err != nil || span < 0 || span%time.Microsecond != 0 {
		w.fail("expected a time span in whole microseconds such as 5us, 1m30s or 30d, not %q", word)
	}
	return int64(span)
}

func parseSpan(word string) (time.Duration, error) {
	days, rest, found := strings.Cut(word, "d")
	if !found {
		return time.ParseDuration(word)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, err
	}
	span := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return span, nil
	}
	more, err := time.ParseDuration(rest)
	return span + more, err
}

// time reads an instant, or a span since start where there is one.
func (w *words) time(start time.Time) time.Time {
	word := w.next("a time")
	t, err := time.Parse(time.RFC3339Nano, word)
	if err != nil && !start.IsZero() {
		var span time.Duration
		span, err = parseSpan(word)
		t = start.Add(span)
	}
	switch {
	case err != nil && start.IsZero():
		w.fail("expected a time such as 2033-05-18T03:33:20Z, not %q", word)
	case err != nil || t.Nanosecond()%1_000 != 0:
		w.fail("expected a time in whole microseconds such as 1m30s or 2033-05-18T03:33:20Z, not %q", word)
	case t.Before(firstTime) || t.After(lastTime):
		w.fail("expected a time from %d to %d, not %q", firstTime.Year(), lastTime.Year()-1, word)
	}
	return t.UTC()
}

func (w *words) algorithm() headgate.Algorithm {
	word := w.next("an algorithm")
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		if a.String() == word {
			return a
		}
	}
	w.fail("there is no algorithm %q", word)
	return 0
}

func (w *words) calendar() headgate.Calendar {
	word := w.next("minute, hour, day, week or month")
	for c := headgate.Minute; c <= headgate.Month; c++ {
		if c.String() == word {
			return c
		}
	}
	w.fail("expected minute, hour, day, week or month, not %q", word)
	return headgate.NoCalendar
}

func (w *words) zone() *time.Location {
	name := w.next("a time zone")
	zone, err := time.LoadLocation(name)
	if err != nil {
		w.fail("there is no time zone %q", name)
	}
	return zone
}
