package suite

import (
	"fmt"
	"strings"
	"time"
)

// Figure is something that was measured, with what it should be.
type Figure struct {
	Text string
	Met  bool
}

// Says is a figure whose text says what is wanted.
func Says(met bool, format string, args ...any) Figure {
	return Figure{fmt.Sprintf(format, args...), met}
}

// AtMost is a time that may not be longer.
func AtMost(what string, got, aim time.Duration) Figure {
	return Says(got <= aim, "%s %s (≤ %s)", what, Span(got), Span(aim))
}

// So is something that should be the case.
func So(met bool, what string) Figure {
	if met {
		return Says(met, "%s: yes", what)
	}
	return Says(met, "%s: no", what)
}

// Noted is a figure without an aim.
func Noted(format string, args ...any) Figure { return Says(true, format, args...) }

// Span writes a duration in three digits.
func Span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.3g ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// Report is a table of what was measured. It counts the lines that have missed an aim.
type Report struct{ Missed int }

// NewReport prints the head of the table.
func NewReport() *Report {
	fmt.Print("| what | measured (aim) | |\n|---|---|---|\n")
	return &Report{}
}

// Line has one verdict on all its figures.
func (r *Report) Line(what string, figures ...Figure) {
	var texts, missed []string
	for _, f := range figures {
		texts = append(texts, f.Text)
		if !f.Met {
			missed = append(missed, f.Text)
		}
	}
	verdict := "PASS"
	if len(missed) > 0 {
		r.Missed++
		verdict = "FAIL"
	}
	if len(missed) > 0 && len(figures) > 1 {
		verdict += ": " + strings.Join(missed, "; ")
	}
	row := fmt.Sprintf("| %s | %s | %s |", what, strings.Join(texts, "; "), verdict)
	fmt.Println(strings.ReplaceAll(row, "\n", " "))
}
