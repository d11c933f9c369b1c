package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// figure is something that was measured, with what it should be.
type figure struct {
	text string
	met  bool
}

// atMost is a time that may not be longer.
func atMost(what string, got, aim time.Duration) figure {
	return says(got <= aim, "%s %s (≤ %s)", what, span(got), span(aim))
}

// says is a figure whose text says what is wanted.
func says(met bool, format string, args ...any) figure {
	return figure{fmt.Sprintf(format, args...), met}
}

// so is something that should be the case.
func so(met bool, what string) figure {
	if met {
		return says(met, "%s: yes", what)
	}
	return says(met, "%s: no", what)
}

// noted is a figure without an aim.
func noted(format string, args ...any) figure { return says(true, format, args...) }

// span is for people.
func span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.3g ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// report is the table.
type report struct{ failed int }

func newReport() *report {
	fmt.Print("| what | measured (aim) | |\n|---|---|---|\n")
	return &report{}
}

// line has one verdict on all its figures.
func (r *report) line(what string, figures ...figure) {
	var texts, missed []string
	for _, f := range figures {
		texts = append(texts, f.text)
		if !f.met {
			missed = append(missed, f.text)
		}
	}
	verdict := "PASS"
	if len(missed) > 0 {
		r.failed++
		verdict = "FAIL"
	}
	if len(missed) > 0 && len(figures) > 1 {
		verdict += ": " + strings.Join(missed, "; ")
	}
	row := fmt.Sprintf("| %s | %s | %s |", what, strings.Join(texts, "; "), verdict)
	fmt.Println(strings.ReplaceAll(row, "\n", " "))
}

// quantile of some times, which it sorts.
func quantile(q float64, times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[max(0, int(math.Ceil(q*float64(len(times))))-1)]
}
