package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
)

// jsonVersion is the "version" of all JSON that is printed. It changes when a key is renamed or removed or means
// something else, not when one is added.
const jsonVersion = 1

// program is what all commands share.
type program struct {
	// in is who can be asked; nil if nobody.
	in     io.Reader
	out    io.Writer
	log    io.Writer
	output string
}

func (p *program) checkOutput(cmd *cobra.Command, _ []string) error {
	if p.output != "human" && p.output != "json" {
		return usage(cmd, fmt.Errorf("--output %s: write human or json", p.output))
	}
	return nil
}

// report is what a command has to say: a text for people, or itself as JSON.
type report interface{ text() string }

// end shows a report. Its error is err, which says how the command ends, unless the report could not be written.
func (p *program) end(r report, err error) error {
	text := r.text()
	if p.output == "json" {
		var wrong error
		if text, wrong = jsonText(r); wrong != nil {
			return wrong
		}
	}
	if _, err := io.WriteString(p.out, text); err != nil {
		return err
	}
	return err
}

// jsonText is a report with the version of its format, unless it has one of its own.
func jsonText(r report) (string, error) {
	var plain, indented bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false) // conditions with && are for people too
	if err := encoder.Encode(r); err != nil {
		return "", err
	}
	text := plain.Bytes()
	if !bytes.HasPrefix(text, []byte(`{"version":`)) {
		text = fmt.Appendf(nil, `{"version":%d,%s`, jsonVersion, text[1:])
	}
	err := json.Indent(&indented, text, "", "  ")
	return indented.String(), err
}

// say tells whoever waits how it goes, beside the report.
func (p *program) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.log, format+"\n", args...) // it is not what was asked for
}

// instant is a time for people.
func instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func sortedNames(a headgate.Attributes) []string { return slices.Sorted(maps.Keys(a)) }

// mostOf is how many of a list to show: as many as usual unless all are wanted.
func mostOf(all bool, usual int) int {
	if all {
		return math.MaxInt
	}
	return usual
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// limitOf is a rule, with one of its limits if that has a name.
func limitOf(rule, limit string) string {
	if limit == "" {
		return rule
	}
	return rule + " (" + limit + ")"
}

func notesText(notes []string) string {
	var b strings.Builder
	for _, note := range notes {
		b.WriteString("note: " + note + "\n")
	}
	return b.String()
}

func moreText(more bool) string {
	if !more {
		return ""
	}
	return "and more: --all shows them\n"
}
