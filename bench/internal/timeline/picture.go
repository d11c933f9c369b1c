package timeline

import (
	"cmp"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes in points: 675 by 420 points are 900 by 560 pixels. Panel names are on the left, the labels of bounds and the legend on
// the right.
const (
	width, height = 675, 420
	left, right   = 22, 84
	gap, row      = 12, 13
	small, large  = 9, 13
)

// colours are the colours of the paths, in order. They are distinguishable with colour blindness too.
var (
	colours = []color.Color{
		rgb(0x0072B2), rgb(0xF0B030), rgb(0xA50026), rgb(0x8CCBEE), rgb(0xCCCCCC),
		rgb(0xCC79A7), rgb(0x009E73), rgb(0x777777),
	}
	ink   = rgb(0x222222)
	faint = rgb(0xDDDDDD)
	grey  = rgb(0xB4B4B4)
	bound = rgb(0xC94A00)
)

func rgb(hex int) color.Color {
	return color.NRGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

func letters(size vg.Length, c color.Color) text.Style {
	return text.Style{Font: sans(size), Color: c, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
}

// background fills an empty canvas, to be readable on any page, and draws the title.
func background(c draw.Canvas, title string) {
	c.SetColor(color.White)
	c.Fill(c.Path())
	c.FillText(letters(large, ink), vg.Point{X: gap, Y: c.Max.Y - 16}, title)
}

// draw draws the run on an empty canvas.
func (r *Run) draw(c draw.Canvas) {
	background(c, r.Title)
	panels := []*panel{r.admittedPanel(), r.latencyPanel(), r.pathsPanel()}
	rows := make([][]*plot.Plot, len(panels))
	for i, p := range panels {
		rows[i] = []*plot.Plot{p.Plot}
	}
	tiles := draw.Tiles{
		Rows: len(rows), Cols: 1, PadY: gap,
		PadLeft: left, PadRight: right, PadTop: 28 + 2*row, PadBottom: gap / 2,
	}
	areas := plot.Align(rows, tiles, c)
	for i, p := range panels {
		p.Draw(areas[i][0])
		areas[i][0] = p.DataCanvas(areas[i][0])
		p.notes(areas[i][0])
	}
	r.legend(areas[2][0])
	all := areas[2][0]
	all.Max.Y = areas[0][0].Max.Y
	drawMarks(all, r.Marks, panels[0].X.Max)
}

// notes draws the names of the panel and of its bound.
func (p *panel) notes(area draw.Canvas) {
	name := letters(small, ink)
	name.XAlign, name.Rotation = draw.XCenter, math.Pi/2
	area.FillText(name, vg.Point{X: gap, Y: area.Center().Y}, p.name)
	if p.bound <= 0 {
		return
	}
	y := area.Y(p.Y.Norm(p.bound))
	dashes := draw.LineStyle{Color: bound, Width: 1.2, Dashes: []vg.Length{5, 3}}
	area.StrokeLine2(dashes, area.Min.X, y, area.Max.X, y)
	area.FillText(letters(small, bound), vg.Point{X: area.Max.X + 5, Y: y}, p.boundName)
}

// legend names the colours of the paths that occur, in the order in which they are stacked.
func (r *Run) legend(area draw.Canvas) {
	at := vg.Point{X: area.Max.X + 6, Y: area.Min.Y + row/2}
	for k, path := range r.paths() {
		if !slices.ContainsFunc(r.Samples, func(s Sample) bool { return s.Path == path }) {
			continue
		}
		area.SetColor(colours[k])
		area.Fill(vg.Rectangle{Min: at.Sub(vg.Point{Y: 4}), Max: at.Add(vg.Point{X: 8, Y: 4})}.Path())
		area.FillText(letters(small, ink), at.Add(vg.Point{X: 12}), path)
		at.Y += row
	}
}

// drawMarks draws a line over all panels for each mark, with its label at the top. It draws from the last mark to the first and
// moves a label up where a later mark overlaps, so that no line crosses a label.
func drawMarks(area draw.Canvas, marks []Mark, end float64) {
	style := letters(small, ink)
	marks = slices.SortedStableFunc(slices.Values(marks), func(a, b Mark) int { return cmp.Compare(b.At, a.At) })
	var taken []vg.Length // the x from which each row is taken
	for _, m := range marks {
		x, y := area.X(m.At.Seconds()/end), area.Max.Y+row/2
		n := 0
		for ; n < len(taken) && x+style.Width(m.Label)+gap > taken[n]; n++ {
			taken[n] = x
			y += row
		}
		if n == len(taken) {
			taken = append(taken, 0)
		}
		taken[n] = x
		area.StrokeLine2(draw.LineStyle{Color: ink, Width: 0.8}, x, area.Min.Y, x, y+row/2)
		area.FillText(style, vg.Point{X: x + 4, Y: y}, m.Label)
	}
}
