package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/headgate/headgate"
)

// jsonVersion is the "version" of all JSON output. It changes when a key is renamed, removed or redefined, not when a key is
// added.
const jsonVersion = 1

// program holds the streams and the output format that all commands share.
type program struct {
	// in is the terminal for confirmations; nil if there is none.
	in     io.Reader
	out    io.Writer
	log    io.Writer
	output string
}

func (p *program) checkOutput(cmd *cobra.Command, _ []string) error {
	if !slices.Contains(outputFormats, p.output) {
		return usage(cmd, fmt.Errorf("--output %s: must be human, json or yaml", p.output))
	}
	return nil
}

// The values of --output.
const (
	outputHuman = "human"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

var outputFormats = []string{outputHuman, outputJSON, outputYAML}

// report is the result of a command. It is printed as text, or encoded as JSON or YAML.
type report interface{ text() string }

// finish prints a report and returns err, the outcome of the command. If printing fails, it returns that error instead.
func (p *program) finish(r report, err error) error {
	var text string
	var encodeErr error
	switch p.output {
	case outputJSON:
		text, encodeErr = jsonText(r)
	case outputYAML:
		text, encodeErr = yamlText(r)
	default:
		if text = escapeControl(r.text()); p.colour() {
			text = paint(text)
		}
	}
	if encodeErr != nil {
		return encodeErr
	}
	if _, err := io.WriteString(p.out, text); err != nil {
		return err
	}
	return err
}

// escapeControl escapes control and format characters except the line feed and the tab: a server, or a client through it, must not
// control the terminal.
func escapeControl(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(r)): // an invalid byte
			fmt.Fprintf(&b, `\x%02x`, text[i])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// colour reports whether human output is painted: on terminals, unless NO_COLOR is set.
func (p *program) colour() bool {
	out, ok := p.out.(*os.File)
	return ok && isTerminal(out) && os.Getenv("NO_COLOR") == ""
}

// isTerminal reports whether a file is a terminal that understands escape sequences.
func isTerminal(file *os.File) bool {
	return term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// verdict matches the first word of a line, or the second if the first is an address, that says how good or bad something is.
var verdict = regexp.MustCompile(`(?m)^( *(?:[\w.\[\]:-]+:\d+ +)?)(ok|FAIL|INVALID|degraded|draining|not_ready|problem|unknown|unreachable|warning)\b`)

// paint colours the verdicts of a text.
func paint(text string) string {
	return verdict.ReplaceAllStringFunc(text, func(found string) string {
		word := strings.TrimLeft(found[strings.LastIndexByte(found, ' ')+1:], " ")
		code := "31" // red
		switch word {
		case "ok":
			code = "32"
		case "warning", "degraded", "draining":
			code = "33"
		}
		return strings.TrimSuffix(found, word) + "\x1b[" + code + "m" + word + "\x1b[0m"
	})
}

// jsonText encodes a report as indented JSON. It adds jsonVersion unless the report has a version of its own.
func jsonText(r report) (string, error) {
	var plain, indented bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false) // conditions contain &&, which must stay readable
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

// yamlText encodes the JSON of a report as YAML, with its keys in the same order.
func yamlText(r report) (string, error) {
	text, err := jsonText(r)
	if err != nil {
		return "", err
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil { // JSON is YAML
		return "", err
	}
	plain(&document)
	var b strings.Builder
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err = encoder.Encode(&document)
	return b.String(), err
}

// plain removes the quotes and braces of JSON where YAML does not need them.
func plain(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, below := range n.Content {
		plain(below)
	}
}

// logf writes a progress message to standard error, separate from the report.
func (p *program) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.log, format+"\n", args...) // a lost progress message does not fail the command
}

// progressf shows the state of long work on one line of the terminal, which the next call replaces. It returns false, and writes nothing,
// if standard error is not a terminal.
func (p *program) progressf(format string, args ...any) bool {
	file, ok := p.log.(*os.File)
	if !ok || !isTerminal(file) {
		return false
	}
	_, _ = fmt.Fprintf(file, "\r\x1b[K"+format, args...) // as logf
	return true
}

// endProgress removes the line of progressf.
func (p *program) endProgress() { p.progressf("") }

// formatTime formats a time for text output.
func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func sortedNames(a headgate.Attributes) []string { return slices.Sorted(maps.Keys(a)) }

// listLimit returns how many entries of a list to show: defaultLimit, or no limit if all is set.
func listLimit(all bool, defaultLimit int) int {
	if all {
		return math.MaxInt
	}
	return defaultLimit
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// qualifiedLimit returns the name of a rule, followed by the name of the limit if the limit has one.
func qualifiedLimit(rule, limit string) string {
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
	return "more entries not shown; use --all\n"
}
