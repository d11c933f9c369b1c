package timeline

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// totals returns 30 s of two lines: one that stops at the bound, and one that does not.
func totals() *Totals {
	t := &Totals{
		Title: "Spent & budget", Unit: "$", Bound: 10, BoundName: "budget $10",
		Lines: []Total{{Name: "ours", Second: "99 %"}, {Name: "theirs", Second: "150 %"}},
		Marks: []Mark{{10 * time.Second, "Redis killed"}, {12 * time.Second, "Redis up"}},
	}
	for s := range 31 {
		at := time.Duration(s) * time.Second
		t.Lines[0].Points = append(t.Lines[0].Points, Point{at, min(9.9, float64(s)/2)})
		t.Lines[1].Points = append(t.Lines[1].Points, Point{at, float64(s) / 2})
	}
	return t
}

func TestDrawTotals(t *testing.T) {
	var svg, again bytes.Buffer
	if err := errors.Join(totals().Draw(&svg), totals().Draw(&again)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(svg.Bytes(), again.Bytes()) {
		t.Error("two drawings of the same totals differ")
	}
	texts := textsOf(t, &svg)
	for _, want := range []string{
		"Spent & budget", "$", "budget $10", "ours", "99 %", "theirs", "150 %", "Redis killed", "Redis up", "30", "seconds since the start",
	} {
		if !slices.Contains(texts, want) {
			t.Errorf("%q is missing in %q", want, texts)
		}
	}
}

func TestDrawRejectsInvalidTotals(t *testing.T) {
	for want, totals := range map[string]*Totals{
		"0 lines: must be 1 to":   {},
		"4 lines: must be 1 to":   {Lines: make([]Total, 4)},
		"no points to draw: ours": {Lines: []Total{{Name: "ours"}}},
	} {
		if err := totals.Draw(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestNamesAreOrderedByTheirEnds(t *testing.T) {
	lines := []Total{{Points: []Point{{0, 9}, {1, 2}}}, {Points: []Point{{0, 1}}}, {Points: []Point{{0, 3}}}}
	if got, want := ascending(lines), []int{1, 0, 2}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
