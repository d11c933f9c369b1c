package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// jsonVersion is the "version" of all JSON that is printed. It changes when a key is renamed or removed or means
// something else, not when one is added.
const jsonVersion = 1

// program is what all commands share.
type program struct {
	out    io.Writer
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
	var b strings.Builder
	if p.output == "json" {
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false) // conditions with && are for people too
		if err := encoder.Encode(r); err != nil {
			return err
		}
	} else {
		b.WriteString(r.text())
	}
	if _, err := io.WriteString(p.out, b.String()); err != nil {
		return err
	}
	return err
}

// count is "1 rule", "2 rules", "10,000 rules".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return grouped(int64(n)) + " " + what
}

// grouped is a number that is not negative, with a comma before each three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// span is a duration for people: in seconds, rounded up as Retry-After is, and in two larger units if it is long.
func span(d time.Duration) string {
	s := int64(math.Ceil(d.Seconds()))
	switch {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 2*3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 2*86400:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
}

// table lines up rows, each indented by two.
func table(rows ...[]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		b := []byte("  " + strings.Join(row, "\t") + "\n")
		_, _ = w.Write(b) // what it writes to takes everything
	}
	_ = w.Flush()
	return b.String()
}

// sentence joins "a", "b" and "c" as people do.
func sentence(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
