// Package console follows the console blocks of documentation, in which commands begin with "$ " and are followed by what they print.
// It compares and draws them; callers run the commands.
package console

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"time"
)

// varies matches what differs from run to run: times, waits, and columns that are as wide as these.
var varies = regexp.MustCompile(`(?:\d+ min )?\d+ ?s\b|20\d\d-\d\d-\S+|[ \t]+`)

// Same reports whether two outputs differ in nothing but what varies.
func Same(a, b string) bool {
	return varies.ReplaceAllString(a, " ") == varies.ReplaceAllString(b, " ")
}

// Follow runs the commands of a block and returns the block with what they printed, and a text for each command that printed something
// else than the block shows. Such a command is repeated until patience is over, because servers need a moment to apply a change, unless
// the block shows no output.
func Follow(block string, patience time.Duration, run func(command string) string) (printed string, differences []string) {
	var b strings.Builder
	for step := range strings.SplitSeq(strings.TrimPrefix(block, "$ "), "\n$ ") {
		command, want, _ := strings.Cut(step, "\n")
		want = strings.TrimRight(want, "\n")
		var got string
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			if got = strings.TrimRight(run(command), "\n"); Same(got, want) {
				got = want
				break
			}
			if want == "" || time.Now().After(deadline) {
				differences = append(differences, command+"\nprints\n"+got+"\nthe page shows\n"+want)
				break
			}
		}
		b.WriteString("$ " + command + "\n")
		if got != "" {
			b.WriteString(got + "\n")
		}
	}
	return b.String(), differences
}

// Draw draws a terminal session as an SVG picture.
func Draw(text string) string {
	const charWidth, lineHeight, margin, columns = 8, 18, 16, 118
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for len(line) > columns {
			at := strings.LastIndex(line[:columns], " ")
			lines = append(lines, line[:at])
			line = "    " + line[at+1:]
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">`+"\n",
		columns*charWidth+2*margin, len(lines)*lineHeight+2*margin)
	b.WriteString(`<rect width="100%" height="100%" rx="8" fill="#0d1117"/>` + "\n")
	for i, line := range lines {
		fill := "#c9d1d9"
		switch {
		case strings.HasPrefix(line, "$ "):
			fill = "#7ee787"
		case strings.HasPrefix(line, "429") || strings.Contains(line, `"allowed":false`):
			fill = "#ff7b72"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" xml:space="preserve">%s</text>`+"\n", margin, margin+(i+1)*lineHeight-5, fill, html.EscapeString(line))
	}
	return b.String() + "</svg>\n"
}
