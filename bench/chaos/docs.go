package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/timeline"
)

// The table stands between these lines.
const tableBegins, tableEnds = "<!-- table -->\n", "<!-- /table -->\n"

// writeTable puts the table into a document.
func writeTable(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !found || !ends {
		return fmt.Errorf("%s: expected a line %q and later %q for the table", path, tableBegins, tableEnds)
	}
	return os.WriteFile(path, []byte(before+tableBegins+table+tableEnds+after), 0o600)
}

// draw draws what callers saw.
func (o *outcome) draw(path string) error {
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
		run.Marks = append(run.Marks, timeline.Mark{At: time.Duration(m.T*float64(time.Second)) - first, Label: m.Label})
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := run.Draw(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
