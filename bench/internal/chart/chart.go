// Package chart draws bar charts. It knows nothing of what they mean.
package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
)

// Bars is a bar chart: horizontal bars in groups, from top to bottom.
type Bars struct {
	Title string
	// Unit is the unit of the values.
	Unit   string
	Groups []Group
}

// Group is a titled group of bars.
type Group struct {
	Title string
	Bars  []Bar
}

// Bar is one bar.
type Bar struct {
	Name  string
	Value float64
	// Ours highlights the bar.
	Ours bool
}

// Sizes in pixels. Names are left of the bars, values right of them.
const (
	width, names, values = 900, 330, 70
	row, thickness       = 22, 14
)

// SVG returns the chart as a deterministic SVG. It has its own background, to be readable on any page.
func (b *Bars) SVG() []byte {
	largest, height := 0.0, 70
	for _, g := range b.Groups {
		height += row * (len(g.Bars) + 2)
		for _, bar := range g.Bars {
			largest = max(largest, bar.Value)
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" fill="#222222" `+
		`font-family="Liberation Sans,Arial,Helvetica,sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	write := func(x, y int, rest, what string) {
		fmt.Fprintf(&out, `<text x="%d" y="%d"%s>`, x, y, rest)
		_ = xml.EscapeText(&out, []byte(what)) // a buffer never fails
		out.WriteString("</text>\n")
	}
	write(16, 28, ` font-size="17" font-weight="bold"`, b.Title)
	write(16, 48, ` fill="#666666"`, b.Unit)
	y := 62
	for _, g := range b.Groups {
		y += 2 * row
		write(16, y-6, ` font-weight="bold"`, g.Title)
		for _, bar := range g.Bars {
			length := int(float64(width-names-values) * bar.Value / largest)
			colour := "#b4b4b4"
			if bar.Ours {
				colour = "#0072b2"
			}
			fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n",
				names, y, max(1, length), thickness, colour)
			write(names-8, y+11, ` text-anchor="end"`, bar.Name)
			write(names+length+6, y+11, "", format(bar.Value))
			y += row
		}
		y -= row / 2
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// format formats a value with at least three digits.
func format(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
