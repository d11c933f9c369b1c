package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/bench/internal/regionjudge"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// run runs a plan in a world of its own, and reports.
func run(scope *suite.Scope, program string, p *plan, r *suite.Report) {
	w := newWorld(scope, program, p)
	testenv.NoError(scope, w.warmUp())
	l := newLoad()
	start := time.Now().Add(time.Second / 2)
	done := make(chan struct{})
	stop := suite.Background(scope.Context(), func(ctx context.Context) {
		defer close(done)
		l.run(ctx, w, start)
	})
	defer stop()
	begins := w.runPhases(start)
	select {
	case <-done:
	case <-scope.Context().Done():
		return
	}
	h := &regionjudge.History{
		Regions: names, Nodes: nodesPerRegion, Skew: map[string]int64{}, Losses: w.losses, Records: l.records,
	}
	for i, name := range names {
		h.Skew[name] = p.skews[i].Microseconds()
	}
	for _, rule := range rules() {
		h.Rules = append(h.Rules, rule.Rule)
	}
	w.report(r, h, begins)
	if r.Missed > 0 {
		testenv.NoError(scope, save(h, historyFile(p.seed)))
	}
	if len(l.errors) > 0 {
		scope.Logf("requests without a response: %v", l.errors)
	}
}

// historyFile returns the name of the file with the history of a seed.
func historyFile(seed uint64) string { return fmt.Sprintf("out/regions/%d.json", seed) }

// save writes a history as JSON.
func save(h *regionjudge.History, file string) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// warmUp returns when each server decides by its store.
func (w *world) warmUp() error {
	for _, r := range w.regions {
		for i := range r.nodes {
			err := await(fmt.Sprintf("server %d of %s", i, r.name), func() error {
				l := newLoad()
				l.send(w.Context(), r, &arrival{node: i, rule: rules()[0].ID, subject: "warm-up", cost: 1})
				if path := l.records[0].Path; path != "store" {
					return fmt.Errorf("decided by %q", cmp.Or(path, "nothing"))
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("%w\n%s", err, r.nodes[i].Output())
			}
		}
	}
	return nil
}

// runPhases begins and ends the faults, and returns when the phases began. A fault may last longer than its phase; the next one is then
// late.
func (w *world) runPhases(start time.Time) (begins []int64) {
	at := start
	for _, phase := range w.plan.phases {
		suite.SleepUntil(w.Context(), at)
		begins = append(begins, at.UnixMicro())
		if phase.begin != nil {
			phase.begin(w)
		}
		at = at.Add(phase.length)
		suite.SleepUntil(w.Context(), at)
		if phase.end != nil {
			phase.end(w)
		}
	}
	return begins
}

// report prints the verdicts on all rules and phases.
func (w *world) report(r *suite.Report, h *regionjudge.History, begins []int64) {
	for i, b := range h.Bounds() {
		alone := *h
		alone.Rules = h.Rules[i : i+1]
		u := alone.Uses(begins[:1])[0]
		figures := []suite.Figure{
			suite.Judged(b.Worst <= 1+1e-9, "admitted at worst %.4f of the limit (≤ 1)", b.Worst),
			suite.Note("used %.3f, falsely denied %.2f %%", u.Utilisation(), 100*u.FalselyDenied()), suite.Note("%d units admitted", b.Admitted),
		}
		if b.Local > 0 {
			figures = append(figures, suite.Note("%d of them by local fallback shares", b.Local))
		}
		if b.Lost > 0 {
			figures = append(figures, suite.Note("%d forgotten by killed stores", b.Lost))
		}
		for i, finding := range b.Findings {
			if i == maxFindings {
				figures = append(figures, suite.Judged(false, "%d more", len(b.Findings)-i))
				break
			}
			figures = append(figures, suite.Judged(false, "%s", finding))
		}
		r.Line("bound: "+b.Rule, figures...)
	}
	for i, u := range h.Uses(begins) {
		phase := w.plan.phases[i]
		if w.plan.bounds || w.plan.skewed() {
			phase.minUse, phase.maxFalse = 0, 0
		}
		r.Line("use: "+phase.name, use(&phase, &u)...)
	}
	total := w.network.Total()
	r.Line("network", suite.Judged(total.Sent > 0 || !w.plan.shared, "%d packets between regions", total.Sent),
		suite.Note("%d lost, %d doubled, %d cut", total.Lost, total.Duplicated, total.Cut))
}

// maxFindings is how many findings a row of the report has.
const maxFindings = 2

// use returns the figures of a phase.
func use(p *phase, u *regionjudge.Use) []suite.Figure {
	target := func(format string, value float64) string {
		if value == 0 {
			return ""
		}
		return fmt.Sprintf(format, value)
	}
	figures := []suite.Figure{
		suite.Judged(p.minUse == 0 || u.Utilisation() >= p.minUse, "used %.3f%s", u.Utilisation(), target(" (≥ %.2f)", p.minUse)),
		suite.Judged(p.maxFalse == 0 || u.FalselyDenied() <= p.maxFalse, "falsely denied %.2f %%%s", 100*u.FalselyDenied(),
			target(" (≤ %.0f %%)", 100*p.maxFalse)),
		suite.Note("%d requests", u.Requests),
	}
	if u.Failed > 0 {
		figures = append(figures, suite.Note("%d without a response", u.Failed))
	}
	if u.Local > 0 {
		figures = append(figures, suite.Note("%d decided locally", u.Local))
	}
	return figures
}
