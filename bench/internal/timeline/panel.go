package timeline

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// panel is a plot with a name and a dashed line at a bound.
type panel struct {
	*plot.Plot
	name      string
	bound     float64
	boundName string
}

func (r *Run) newPanel(name string) *panel {
	return newPanel(name, float64(r.slices())*slice.Seconds())
}

// newPanel returns an empty panel whose time axis ends after some seconds.
func newPanel(name string, end float64) *panel {
	p := &panel{Plot: plot.New(), name: name}
	p.BackgroundColor = nil
	p.X.Min, p.X.Max = 0, end
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Padding, axis.Color = 0, ink
		axis.Tick.Length, axis.Tick.Color = 4, ink
		axis.Tick.Label.Font, axis.Tick.Label.Color = sans(small), ink
		axis.Label.TextStyle.Font, axis.Label.TextStyle.Color = sans(small), ink
	}
	p.X.Tick.Marker = plot.ConstantTicks{}
	p.Add(&plotter.Grid{Horizontal: draw.LineStyle{Color: faint, Width: 0.5}})
	return p
}

func (r *Run) admittedPanel() *panel {
	p := r.newPanel(fmt.Sprintf("admitted in %v", r.Window))
	p.bound, p.boundName = r.Limit, fmt.Sprintf("limit %g", r.Limit)
	counts := r.admitted()
	p.Y.Min, p.Y.Max = 0, 1.25*slices.Max(append(counts, r.Limit, 1))
	p.Add(&plotter.Polygon{XYs: []plotter.XYs{between(make([]float64, len(counts)), counts, r.perWindow())}, Color: grey})
	return p
}

// latencyPanel returns a logarithmic plot, in which both half a millisecond and the deadline are visible.
func (r *Run) latencyPanel() *panel {
	p := r.newPanel("p99 latency, ms")
	p.bound, p.boundName = milliseconds(r.Deadline+grace), fmt.Sprintf("deadline + %g ms", milliseconds(grace))
	p.Y.Scale = plot.LogScale{}
	var ticks plot.ConstantTicks // plot.LogTicks has powers of ten only, and not all of them
	for _, ms := range []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000} {
		ticks = append(ticks, plot.Tick{Value: ms, Label: fmt.Sprint(ms)})
	}
	p.Y.Tick.Marker = ticks
	p99 := r.p99()
	p.Y.Min, p.Y.Max = 1, 2*slices.Max(append(p99, p.bound))
	// Slices without samples interrupt the line.
	for i := 0; i < len(p99); i++ {
		first := i
		for i < len(p99) && p99[i] > 0 {
			p.Y.Min = min(p.Y.Min, p99[i]/2)
			i++
		}
		if i > first {
			p.Add(&plotter.Line{XYs: outline(first, p99[first:i], 1), LineStyle: draw.LineStyle{Color: ink, Width: 1.2}})
		}
	}
	return p
}

func (r *Run) pathsPanel() *panel {
	p := r.newPanel("decisions by path")
	p.Y.Min, p.Y.Max = 0, 1
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0 %"}, {Value: 0.5, Label: "50 %"}, {Value: 1, Label: "100 %"}}
	p.labelTime()
	lines := r.stack(r.paths())
	for k, line := range lines[1:] {
		p.Add(&plotter.Polygon{XYs: []plotter.XYs{between(lines[k], line, 1)}, Color: colours[k]})
	}
	return p
}

// labelTime labels the time axis. Only the lowest panel has labels.
func (p *panel) labelTime() {
	p.X.Label.Text = "seconds since the start"
	step := math.Ceil(p.X.Max / 15)
	for _, round := range []float64{1, 2, 5, 10, 15, 30, 60} {
		if round >= step {
			step = round
			break
		}
	}
	var ticks plot.ConstantTicks
	for s := 0.0; s <= p.X.Max; s += step {
		ticks = append(ticks, plot.Tick{Value: s, Label: fmt.Sprint(s)})
	}
	p.X.Tick.Marker = ticks
}

// between returns the area between two outlines.
func between(low, high []float64, wide int) plotter.XYs {
	back := outline(0, low, wide)
	slices.Reverse(back)
	return append(outline(0, high, wide), back...)
}

// outline returns the line along the tops of columns, each wide slices wide. first is the number of the first column.
func outline(first int, tops []float64, wide int) plotter.XYs {
	var line plotter.XYs
	x := func(i int) float64 { return float64((first+i)*wide) * slice.Seconds() }
	for i, top := range tops {
		if i == 0 || top != tops[i-1] {
			line = append(line, plotter.XY{X: x(i), Y: top})
		}
		if i+1 == len(tops) || top != tops[i+1] {
			line = append(line, plotter.XY{X: x(i + 1), Y: top})
		}
	}
	return line
}
