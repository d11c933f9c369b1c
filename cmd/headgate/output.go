package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// jsonVersion is the "version" of all JSON that is printed. It changes when a key is renamed or removed or means
// something else, not when one is added.
const jsonVersion = 1

// program is what all commands share.
type program struct {
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
