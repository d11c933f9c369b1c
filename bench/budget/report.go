package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/bench/internal/timeline"
)

// printTable prints what each side has spent, and how its calls ended.
func printTable(w io.Writer, p *plan, all sides) {
	const row = "%-26s %8s %8s %8s %8s %9s %8s %6s %7s %7s\n"
	_, _ = fmt.Fprintf(w, row, "", "budget", "counted", "spent", "over", "finished", "stopped", "reset", "denied", "errors")
	for _, s := range all {
		calls := func(o outcome) string { return strconv.FormatInt(s.load.calls[o].Load(), 10) }
		spent := s.model.spent()
		_, _ = fmt.Fprintf(w, row, s.name, money(p.budget), money(s.counted()), money(spent), fmt.Sprintf("%+.1f %%", 100*(used(spent, p.budget)-1)),
			calls(finished), calls(stopped), calls(reset), calls(denied), calls(failed))
	}
	_, _ = fmt.Fprint(w, legend)
}

// legend explains the table. A short run has no tuned side.
const legend = `counted: by the limiter; spent: billed by the model; stopped: where the budget ended; denied, errors: attempts
tuned: Envoy counts each token that passes, also those of streams that are reset, and denies if the rate limit service fails
`

// used returns the fraction of the budget that was spent.
func used(spent, budget int64) float64 { return float64(spent) / float64(budget) }

func money(micros int64) string { return fmt.Sprintf("$%.3f", dollars(micros)) }

// judge prints a verdict on Headgate's side, and returns the number of rows that missed a target.
func judge(p *plan, all sides) (missed int) {
	report := suite.NewReport()
	for _, s := range all {
		if s.ours {
			report.Line(s.name, p.verdict(s.model.spent())...)
		}
	}
	return report.Missed
}

// verdict judges what was spent of the budget.
func (p *plan) verdict(spent int64) []suite.Figure {
	share := used(spent, p.budget)
	return []suite.Figure{
		suite.Judged(spent <= p.budget, "spent %s (≤ %s)", money(spent), money(p.budget)),
		suite.Judged(share >= p.leastUsed, "used %.2f %% of the budget (≥ %.0f %%)", 100*share, 100*p.leastUsed),
	}
}

// draw draws the bills of all sides.
func (r *recording) draw(p *plan, all sides, path string) error {
	totals := timeline.Totals{
		Title: fmt.Sprintf("What a tenant's language model has billed, %d streams at a time", p.streams),
		Unit:  "dollars billed by the model", Bound: dollars(p.budget), BoundName: fmt.Sprintf("budget $%g", dollars(p.budget)), Marks: r.marks,
	}
	for _, s := range all {
		totals.Lines = append(totals.Lines, timeline.Total{
			Name: s.name, Second: fmt.Sprintf("%.1f %% of the budget", 100*used(s.model.spent(), p.budget)), Points: s.bill,
		})
	}
	var svg bytes.Buffer
	if err := totals.Draw(&svg); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, svg.Bytes(), 0o600)
}
