// Package timeline draws what happened during a failure, over one time axis: units admitted, latency and the path of decisions, as
// callers saw them, or totals that grow towards a bound. It knows nothing of how the run was made.
package timeline

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sample is one decision.
type Sample struct {
	// At is when the call began, since the start of the run. Latency is how long it took.
	At, Latency time.Duration
	// Limited is whether the call was for the subject whose admissions are compared with the limit.
	Limited, Allowed bool
	// Path is the path of the decision: a headgate.Path, or a word of the caller's own.
	Path string
}

// Mark is an event that is drawn in all panels. The labels of two close marks fit, of three hardly.
type Mark struct {
	At    time.Duration
	Label string
}

// Run is the data of one drawing.
type Run struct {
	// Title names the fault.
	Title string
	// Limit is how many calls of the limited subject may be admitted in each Window. The first window begins with the run.
	Limit    float64
	Window   time.Duration
	Deadline time.Duration
	// Samples may be in any order.
	Samples []Sample
	Marks   []Mark
}

const (
	// slice is the resolution of latencies and shares.
	slice = 100 * time.Millisecond
	// grace is how much later than the deadline a response may be.
	grace = 5 * time.Millisecond
)

// Draw writes the run as a deterministic SVG.
func (r *Run) Draw(w io.Writer) error {
	if len(r.Samples) == 0 {
		return errors.New("timeline: no samples to draw")
	}
	if r.Window < slice || r.Window%slice != 0 {
		return fmt.Errorf("timeline: window %v: must be a multiple of %v", r.Window, slice)
	}
	for _, s := range r.Samples {
		if s.At < 0 {
			return fmt.Errorf("timeline: sample at %v: must not be before the start of the run", s.At)
		}
	}
	for _, m := range r.Marks {
		if m.At < 0 {
			return fmt.Errorf("timeline: mark %q at %v: must not be before the start of the run", m.Label, m.At)
		}
	}
	if paths := r.paths(); len(paths) > len(colours) {
		return fmt.Errorf("timeline: too few colours for these paths: %q", paths)
	}
	return writeSVG(w, height, r.draw)
}

// writeSVG writes what paint draws on an empty canvas of a height.
func writeSVG(w io.Writer, height vg.Length, paint func(draw.Canvas)) error {
	canvas := vgsvg.New(width, height)
	paint(draw.New(canvas))
	var svg strings.Builder
	if _, err := canvas.WriteTo(&svg); err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	// Few readers have Liberation Sans; the fallback fonts have the same metrics.
	const family = "font-family:Liberation Sans"
	_, err := io.WriteString(w, strings.ReplaceAll(svg.String(), family, family+",Arial,Helvetica,sans-serif"))
	return err
}

// slices returns the number of slices of the run, including a last incomplete one.
func (r *Run) slices() int {
	var last time.Duration
	for _, s := range r.Samples {
		last = max(last, s.At)
	}
	for _, m := range r.Marks {
		last = max(last, m.At)
	}
	return int(last/slice) + 1
}

// admitted returns the number of admitted calls in each window. It omits a last incomplete window, which would look like a drop.
func (r *Run) admitted() []float64 {
	counts := make([]float64, r.slices()/r.perWindow())
	for _, s := range r.Samples {
		if i := int(s.At / r.Window); s.Limited && s.Allowed && i < len(counts) {
			counts[i]++
		}
	}
	return counts
}

// perWindow returns the number of slices in a window.
func (r *Run) perWindow() int { return int(r.Window / slice) }

// p99 returns the p99 latency of each slice in milliseconds, at least 0.001; 0 for a slice without samples.
func (r *Run) p99() []float64 {
	latencies := make([][]time.Duration, r.slices())
	for _, s := range r.Samples {
		i := s.At / slice
		latencies[i] = append(latencies[i], s.Latency)
	}
	p99 := make([]float64, len(latencies))
	for i, l := range latencies {
		if len(l) > 0 {
			slices.Sort(l)
			p99[i] = max(milliseconds(l[(len(l)*99+99)/100-1]), 0.001)
		}
	}
	return p99
}

// paths returns the usual paths and then all others of the run, so that each usual path has the same colour in every drawing.
func (r *Run) paths() []string {
	paths := []string{"store", "local", "failed", "rules", "none", "lease", "cache"}
	usual := len(paths)
	for _, s := range r.Samples {
		if !slices.Contains(paths, s.Path) {
			paths = append(paths, s.Path)
		}
	}
	slices.Sort(paths[usual:])
	return paths
}

// stack returns stacked lines: in each slice, the difference between a path's line and the previous line is the share of
// decisions by that path. The first line is 0. In slices without samples all lines are 0.
func (r *Run) stack(paths []string) [][]float64 {
	lines := make([][]float64, len(paths)+1)
	for k := range lines {
		lines[k] = make([]float64, r.slices())
	}
	totals := make([]float64, r.slices())
	for _, s := range r.Samples {
		i := s.At / slice
		totals[i]++
		for k := slices.Index(paths, s.Path) + 1; k < len(lines); k++ {
			lines[k][i]++
		}
	}
	for _, line := range lines {
		for i := range line {
			line[i] /= max(totals[i], 1)
		}
	}
	return lines
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
