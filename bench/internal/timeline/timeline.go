// Package timeline draws what callers saw while a store failed: how much was admitted, how long answers took and who
// gave them, over one time axis. It knows nothing of how the run was made.
package timeline

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sample is one answer.
type Sample struct {
	// At is when the call began, since the start of the run. Latency is how long the answer took.
	At, Latency time.Duration
	// Limited says that the call was for the subject whose admissions are held against the limit.
	Limited, Allowed bool
	// Path says who answered: a headgate.Path, or a word of the caller's own.
	Path string
}

// Mark is an event to see in all panels. Labels of two that are close to each other fit, of three hardly.
type Mark struct {
	At    time.Duration
	Label string
}

// Run is what is drawn.
type Run struct {
	// Title says the fault.
	Title string
	// Limit is how many calls of the limited subject may be admitted in each Window. The first begins with the run.
	Limit    float64
	Window   time.Duration
	Deadline time.Duration
	// Samples may be in any order.
	Samples []Sample
	Marks   []Mark
}

const (
	// slice is how long a point of latencies and shares is.
	slice = 100 * time.Millisecond
	// grace is how much later than the deadline an answer may be.
	grace = 5 * time.Millisecond
)

// Draw writes the run as an SVG: the same one for the same run.
func (r *Run) Draw(w io.Writer) error {
	if len(r.Samples) == 0 {
		return errors.New("timeline: no samples to draw")
	}
	if r.Window < slice || r.Window%slice != 0 {
		return fmt.Errorf("timeline: a window of %v is not a multiple of %v", r.Window, slice)
	}
	for _, s := range r.Samples {
		if s.At < 0 {
			return fmt.Errorf("timeline: a sample is %v before the start of the run", -s.At)
		}
	}
	for _, m := range r.Marks {
		if m.At < 0 {
			return fmt.Errorf("timeline: the mark %q is %v before the start of the run", m.Label, -m.At)
		}
	}
	if paths := r.paths(); len(paths) > len(colours) {
		return fmt.Errorf("timeline: too few colours to tell these paths apart: %q", paths)
	}
	canvas := vgsvg.New(width, height)
	r.draw(draw.New(canvas))
	var svg strings.Builder
	if _, err := canvas.WriteTo(&svg); err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	// Few readers have Liberation Sans; the others named are as wide.
	const family = "font-family:Liberation Sans"
	_, err := io.WriteString(w, strings.ReplaceAll(svg.String(), family, family+",Arial,Helvetica,sans-serif"))
	return err
}

// slices is how many slices the run has, the last one begun included.
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

// admitted is how many were, in each window. A last one that is not full is left out: it would look like a fall.
func (r *Run) admitted() []float64 {
	counts := make([]float64, r.slices()/r.perWindow())
	for _, s := range r.Samples {
		if i := int(s.At / r.Window); s.Limited && s.Allowed && i < len(counts) {
			counts[i]++
		}
	}
	return counts
}

// perWindow is how many slices a window has.
func (r *Run) perWindow() int { return int(r.Window / slice) }

// p99 is in milliseconds, at least 0.001, for each slice; 0 if nobody asked.
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

// paths are all that may be or are drawn: the usual ones first, so that each has the same colour in every drawing.
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

// stack has the share of a path's answers in each slice between its own line and the one before; the first is at 0. If
// nobody asked, all are.
func (r *Run) stack(paths []string) [][]float64 {
	lines := make([][]float64, len(paths)+1)
	for k := range lines {
		lines[k] = make([]float64, r.slices())
	}
	answers := make([]float64, r.slices())
	for _, s := range r.Samples {
		i := s.At / slice
		answers[i]++
		for k := slices.Index(paths, s.Path) + 1; k < len(lines); k++ {
			lines[k][i]++
		}
	}
	for _, line := range lines {
		for i := range line {
			line[i] /= max(answers[i], 1)
		}
	}
	return lines
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
