package suite

import (
	"fmt"
	"strings"
	"time"
)

// Figure is a measurement and whether it met its target.
type Figure struct {
	Text string
	Met  bool
}

// Judged returns a figure whose text names the target.
func Judged(met bool, format string, args ...any) Figure {
	return Figure{fmt.Sprintf(format, args...), met}
}

// MaxDuration returns a figure for a duration that may be at most target.
func MaxDuration(what string, got, target time.Duration) Figure {
	return Judged(got <= target, "%s %s (≤ %s)", what, FormatDuration(got), FormatDuration(target))
}

// Holds returns a figure for a condition that should be true.
func Holds(met bool, what string) Figure {
	if met {
		return Judged(met, "%s: yes", what)
	}
	return Judged(met, "%s: no", what)
}

// Note returns a figure without a target.
func Note(format string, args ...any) Figure { return Judged(true, format, args...) }

// FormatDuration formats a duration with three significant digits.
func FormatDuration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.3g ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// Report is a table of figures. It counts the rows that missed a target.
type Report struct{ Missed int }

// NewReport prints the table's header.
func NewReport() *Report {
	fmt.Print("| what | measured (target) | |\n|---|---|---|\n")
	return &Report{}
}

// Line prints a row with its figures and one verdict on all of them.
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
