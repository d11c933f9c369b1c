package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/timeline"
	"github.com/headgate/headgate/internal/testenv"
)

// The table stands between these lines.
const tableBegins, tableEnds = "<!-- table -->\n", "<!-- /table -->\n"

// writeTable puts the table into a document.
func writeTable(t testing.TB, path, table string) {
	text, err := os.ReadFile(path)
	testenv.NoError(t, err)
	before, rest, found := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !found || !ends {
		t.Fatalf("%s: expected a line %q and later %q for the table", path, tableBegins, tableEnds)
	}
	testenv.NoError(t, os.WriteFile(path, []byte(before+tableBegins+table+tableEnds+after), 0o600))
}

// draw draws what callers saw.
func (o *outcome) draw(t testing.TB, path string) {
	run := timeline.Run{Title: o.fault.name, Limit: limit, Window: window, Deadline: maxP99 - 5*time.Millisecond}
	first := o.start.Truncate(window).Add(window).Sub(o.start) // window that is whole
	end := first + (o.stop - first).Truncate(window)
	for i := range o.samples {
		if s := &o.samples[i]; s.At >= first && s.At < end {
			run.Samples = append(run.Samples, timeline.Sample{
				At: s.At - first, Latency: s.Latency, Limited: s.hot(), Allowed: s.Allowed, Path: s.Path,
			})
		}
	}
	for _, m := range o.marks {
		run.Marks = append(run.Marks, timeline.Mark{At: m.At - first, Label: m.Label})
	}
	var svg bytes.Buffer
	testenv.NoError(t, run.Draw(&svg))
	testenv.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	testenv.NoError(t, os.WriteFile(path, svg.Bytes(), 0o600))
}
