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

// The lines before and after the table.
const tableBegin, tableEnd = "<!-- table -->\n", "<!-- /table -->\n"

// writeTable replaces the table in a document.
func writeTable(t testing.TB, path, table string) {
	text, err := os.ReadFile(path)
	testenv.NoError(t, err)
	before, rest, found := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !found || !ends {
		t.Fatalf("%s: no line %q followed by %q for the table", path, tableBegin, tableEnd)
	}
	testenv.NoError(t, os.WriteFile(path, []byte(before+tableBegin+table+tableEnd+after), 0o600))
}

// draw draws the decisions that callers saw.
func (o *outcome) draw(t testing.TB, path string) {
	run := timeline.Run{Title: o.fault.name, Limit: limit, Window: window, Deadline: maxP99 - 5*time.Millisecond}
	first := o.start.Truncate(window).Add(window).Sub(o.start) // start of the first whole window
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
