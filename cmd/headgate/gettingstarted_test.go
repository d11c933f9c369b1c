package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

const (
	startPage    = "../../docs/getting-started.md"
	startPicture = "../../docs/getting-started/session.svg"
)

// startVaries matches what differs from run to run: times, waits, and columns that are as wide as these.
var startVaries = regexp.MustCompile(`\d+ s\b|at 20\S+|[ \t]+`)

// sameScreen reports whether two outputs differ in nothing but what varies.
func sameScreen(a, b string) bool {
	return startVaries.ReplaceAllString(a, " ") == startVaries.ReplaceAllString(b, " ")
}

// TestGettingStarted follows docs/getting-started.md from top to bottom with a real Redis: it writes the files, starts the server, runs
// every command, and compares what each prints. With -update it writes the outputs and the picture of the session.
func TestGettingStarted(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(startPage)
	if err != nil {
		t.Fatal(err)
	}
	page, dir, sh := string(data), t.TempDir(), newShell(t)
	replace := []string{"redis://127.0.0.1:6379", "redis://" + testenv.Start(t, testenv.Redis).Addr()}
	var session strings.Builder
	for _, block := range fenced.FindAllStringSubmatch(page, -1) {
		kind, text := block[1], block[2]
		local := strings.NewReplacer(replace...).Replace(text)
		switch {
		case kind == "yaml":
			title, body := titled(local)
			name, appended := strings.CutSuffix(title, ", appended")
			file := filepath.Join(dir, name)
			if appended {
				session.WriteString("$ cat >> " + name + "\n" + body)
				before, err := os.ReadFile(file)
				testenv.NoError(t, err)
				body = string(before) + body
			}
			writeFile(t, file, body)
		case kind == "sh" && strings.Contains(text, "headgate serve --config config.yaml &\n"):
			config, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
			testenv.NoError(t, err)
			writeFile(t, filepath.Join(dir, "config.yaml"), anyPorts+string(config))
			replace = append(replace, "127.0.0.1:8080", serve(t, "--config", filepath.Join(dir, "config.yaml")).addressOf("http"))
		case kind == "console":
			got := followConsole(t, sh, dir, text, replace)
			if *update {
				page = strings.Replace(page, text, got, 1)
			}
			if strings.Contains(text, "curl") || strings.Contains(text, "explain") {
				session.WriteString(got)
			}
		case strings.HasPrefix(text, "go install "): // make quickstart does that
		default:
			t.Errorf("a block that this test does not know: %s", text)
		}
	}
	if drawn := drawSession(session.String()); *update {
		testenv.NoError(t, os.WriteFile(startPage, []byte(page), 0o600))
		testenv.NoError(t, os.WriteFile(startPicture, []byte(drawn), 0o600))
	} else if old, err := os.ReadFile(startPicture); err != nil || !sameScreen(string(old), drawn) {
		t.Errorf("%s is not the picture of this session; -update draws it: %v", startPicture, err)
	}
}

// followConsole runs the commands of a console block and returns the block with what they printed. Without -update that must be what the
// block shows; a command may need a moment, because the server reads changed rules within a second.
func followConsole(t *testing.T, sh *shell, dir, text string, replace []string) string {
	t.Helper()
	var printed strings.Builder
	for i, step := range strings.Split(strings.TrimPrefix(text, "$ "), "\n$ ") {
		command, want, _ := strings.Cut(step, "\n")
		local := strings.NewReplacer(replace...).Replace(command)
		var got string
		for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			out, _ := sh.run("cd " + shellQuote(dir) + "\n" + local)
			for j := 0; j+1 < len(replace); j += 2 {
				out = strings.ReplaceAll(out, replace[j+1], replace[j])
			}
			got = strings.TrimRight(out, "\n")
			if want := strings.TrimRight(want, "\n"); sameScreen(got, want) {
				got = want
				break
			}
			if time.Now().After(deadline) {
				if !*update {
					t.Errorf("%s\nprints\n%s\nthe page shows\n%s", command, got, want)
				}
				break
			}
		}
		if i > 0 {
			printed.WriteString("\n")
		}
		printed.WriteString("$ " + command + "\n" + got)
	}
	return printed.String() + "\n"
}

// drawSession draws a terminal session as an SVG picture.
func drawSession(text string) string {
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
