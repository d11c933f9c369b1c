package region

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

var update = flag.Bool("update", false, "draw docs/regions/day.svg")

// The day of docs/regions.md: 600 requests a minute in three regions, each busy in its own daytime, of which one is cut off for four hours.
const (
	dayLength  = 24 * time.Hour
	cutFrom    = 12 * time.Hour
	cutTo      = 16 * time.Hour
	cutRegion  = 0
	dayPeriod  = 15 * time.Minute // of one value in the picture
	dayPeriods = int(dayLength / dayPeriod)
)

var dayRegions = []string{"eu", "us", "ap"}

// TestDay runs the day, and draws it.
func TestDay(t *testing.T) {
	if !*update {
		t.Skip("draws docs/regions/day.svg with -update; TestPartition checks the same")
	}
	limit := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 600, Window: time.Minute}
	busy := func(at time.Duration, peak float64) float64 { // from 0.05 to 1, highest at the hour of peak
		return 0.05 + 0.95*math.Pow(max(0, math.Cos((at.Hours()-peak)/24*2*math.Pi)), 2)
	}
	s := scenario{seed: 1, limit: limit, weights: []int64{1, 1, 1}, nodes: 2, length: dayLength, oneWay: wan}
	s.load = func(at time.Duration) []float64 {
		return []float64{11 * busy(at, 13), 11 * busy(at, 20), 11 * busy(at, 5)}
	}
	s.cut = func(from, to int, at time.Duration) bool {
		return (from == cutRegion || to == cutRegion) && at >= cutFrom && at < cutTo
	}
	s.cost = func(*rand.Rand) int64 { return 1 }
	o := s.run(t)
	if o.over > 1 {
		t.Errorf("%.4f of the limit were granted", o.over)
	}
	var granted, requested [3][]float64
	var cutGranted, cutPossible int64
	for i := range granted {
		granted[i], requested[i] = make([]float64, dayPeriods), make([]float64, dayPeriods)
	}
	for _, g := range o.grants {
		period := int(g.at / dayPeriod)
		granted[g.region][period] += float64(g.granted) / dayPeriod.Minutes()
		requested[g.region][period] += float64(g.cost) / dayPeriod.Minutes()
		if g.region == cutRegion && g.at >= cutFrom+time.Minute && g.at < cutTo {
			cutGranted += g.granted
		}
	}
	cutPossible = int64((cutTo - cutFrom - time.Minute).Minutes()) * limit.Count / 3
	t.Logf("used %.4f of the ideal; %d loan requests for %d requests; while cut off, %s used %.3f of its share",
		o.used, o.loanRequests, o.requests, dayRegions[cutRegion], float64(cutGranted)/float64(cutPossible))
	if ratio := float64(cutGranted) / float64(cutPossible); ratio < 0.95 {
		t.Errorf("while cut off, the region used %.3f of its share", ratio)
	}
	if err := os.WriteFile("../../docs/regions/day.svg", drawDay(&granted, &requested, float64(limit.Count)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// drawDay returns a picture of the day: for each region what was requested and what was allowed, per minute.
func drawDay(granted, requested *[3][]float64, limit float64) []byte {
	const left, width, height, gap, top = 72.0, 640.0, 90.0, 34.0, 30.0
	total := top + 4*(height+gap)
	var b strings.Builder
	printf := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(x, y float64, anchor, size, s string) {
		printf(`<text x="%.0f" y="%.0f" text-anchor="%s" font-size="%s" fill="#222222">%s</text>`, x, y, anchor, size, s)
	}
	printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="Liberation Sans,Arial,Helvetica,sans-serif">`, left+width+20, total)
	printf(`<rect width="100%%" height="100%%" fill="#FFFFFF"/>`)
	x := func(at time.Duration) float64 { return left + width*at.Hours()/24 }
	panel := func(row int, name string, upper float64, mark float64, markName string, series ...[]float64) {
		y0 := top + float64(row)*(height+gap) + height
		y := func(v float64) float64 { return y0 - height*v/upper }
		printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#F4E3E0"/>`, x(cutFrom), y0-height, x(cutTo)-x(cutFrom), height)
		colours := []string{"#C9CDD3", "#3C6E8F"}
		for i, values := range series {
			printf(`<path d="M%.1f,%.1f%s L%.1f,%.1f Z" fill="%s"/>`, x(0), y0, steps(values, x, y), x(dayLength), y0, colours[i])
		}
		printf(`<path d="M%.1f,%.1f H%.1f" stroke="#222222" stroke-dasharray="4 3" fill="none"/>`, x(0), y(mark), x(dayLength))
		printf(`<path d="M%.1f,%.1f H%.1f" stroke="#222222" fill="none"/>`, x(0), y0, x(dayLength))
		text(left, y0-height-6, "start", "13", name)
		text(left-6, y(mark)+4, "end", "11", markName)
		text(left-6, y0+4, "end", "11", "0")
	}
	sum, wanted := make([]float64, dayPeriods), make([]float64, dayPeriods)
	for i, name := range dayRegions {
		label := name + ": requested (grey) and allowed (blue) per minute"
		if i == cutRegion {
			label += "; cut off from 12 to 16 h"
		}
		panel(i, label, 700, limit/3, fmt.Sprintf("share %.0f", limit/3), requested[i], granted[i])
		for j := range sum {
			sum[j] += granted[i][j]
			wanted[j] += requested[i][j]
		}
	}
	panel(3, "all regions", 1400, limit, fmt.Sprintf("limit %.0f", limit), wanted, sum)
	for hour := 0; hour <= 24; hour += 4 {
		text(x(time.Duration(hour)*time.Hour), total-gap+18, "middle", "11", fmt.Sprintf("%d h", hour))
	}
	printf(`</svg>`)
	return []byte(b.String())
}

// steps returns the path of values that each last for one period.
func steps(values []float64, x func(time.Duration) float64, y func(float64) float64) string {
	var b strings.Builder
	for i, v := range values {
		fmt.Fprintf(&b, " L%.1f,%.1f L%.1f,%.1f", x(time.Duration(i)*dayPeriod), y(v), x(time.Duration(i+1)*dayPeriod), y(v))
	}
	return b.String()
}
