package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// totalsHeight is the height of a drawing of totals in points, and totalsRight the space for the names of its lines.
const totalsHeight, totalsRight = 260, 170

// Point is a total at a time since the start of the run.
type Point struct {
	At    time.Duration
	Total float64
}

// Total is a line of a drawing of totals.
type Total struct {
	// Name stands right of the end of the line; a second text in the next row.
	Name   string
	Second string
	// Points are in the order of time.
	Points []Point
}

// Totals is a drawing of totals that grow towards a bound that they should not exceed.
type Totals struct {
	Title string
	// Unit is the name of the vertical axis.
	Unit      string
	Bound     float64
	BoundName string
	// Lines are at most three. The first is emphasized.
	Lines []Total
	Marks []Mark
}

// totalColours are the colours of the lines, in order: those of paths that are distinguishable with colour blindness too.
var totalColours = []int{0x0072B2, 0xA50026, 0x777777}

// Draw writes the totals as a deterministic SVG.
func (t *Totals) Draw(w io.Writer) error {
	if len(t.Lines) == 0 || len(t.Lines) > len(totalColours) {
		return fmt.Errorf("timeline: %d lines: must be 1 to %d", len(t.Lines), len(totalColours))
	}
	for _, l := range t.Lines {
		if len(l.Points) == 0 {
			return errors.New("timeline: no points to draw: " + l.Name)
		}
	}
	return writeSVG(w, totalsHeight, t.draw)
}

// draw draws the totals on an empty canvas.
func (t *Totals) draw(c draw.Canvas) {
	background(c, t.Title)
	end, largest := 0.0, t.Bound
	for _, l := range t.Lines {
		for _, p := range l.Points {
			end, largest = max(end, p.At.Seconds()), max(largest, p.Total)
		}
	}
	p := newPanel(t.Unit, math.Max(end, 1))
	p.bound = t.Bound
	p.Y.Min, p.Y.Max = 0, 1.1*largest
	p.labelTime()
	for i, l := range slices.Backward(t.Lines) { // the first on top
		var line plotter.XYs
		for _, point := range l.Points {
			line = append(line, plotter.XY{X: point.At.Seconds(), Y: point.Total})
		}
		width := vg.Length(1.6)
		if i == 0 {
			width = 2.4
		}
		p.Add(&plotter.Line{XYs: line, LineStyle: draw.LineStyle{Color: rgb(totalColours[i]), Width: width}})
	}
	tiles := draw.Tiles{Rows: 1, Cols: 1, PadLeft: left, PadRight: totalsRight, PadTop: 28 + 2*row, PadBottom: gap / 2}
	area := plot.Align([][]*plot.Plot{{p.Plot}}, tiles, c)[0][0]
	p.Draw(area)
	area = p.DataCanvas(area)
	p.notes(area)
	t.names(area, p)
	drawMarks(area, t.Marks, p.X.Max)
}

// names writes the name of the bound inside of the plot and those of the lines at their ends, moved apart where they overlap.
func (t *Totals) names(area draw.Canvas, p *panel) {
	area.FillText(letters(small, bound), vg.Point{X: area.Min.X + 5, Y: area.Y(p.Y.Norm(t.Bound)) + row*0.7}, t.BoundName)
	floor := area.Min.Y - gap
	// From the lowest line up.
	for _, i := range ascending(t.Lines) {
		l := t.Lines[i]
		y := max(area.Y(p.Y.Norm(l.Points[len(l.Points)-1].Total)), floor+row)
		style := letters(small, rgb(totalColours[i]))
		at := vg.Point{X: area.Max.X + 6, Y: y}
		if l.Second != "" {
			area.FillText(style, at, l.Second)
			at.Y += row
		}
		area.FillText(style, at, l.Name)
		floor = at.Y + gap/2
	}
}

// ascending returns the numbers of the lines by the totals that they end with.
func ascending(lines []Total) []int {
	var order []int
	for i := range lines {
		order = append(order, i)
	}
	last := func(i int) float64 { return lines[i].Points[len(lines[i].Points)-1].Total }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(last(a), last(b)) })
	return order
}
