package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestControlPlaneExample runs the commands in examples/control-plane/README.md and compares their output.
func TestControlPlaneExample(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "examples", "control-plane")
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := startControlPlane(t)
	o.file("rules.yaml", string(rules))
	o.file("hurry.yaml", strings.ReplaceAll(string(rules), "10/minute", "2/minute"))
	last := ""
	got := regexp.MustCompile("(?s)```console\n(.*?)```").ReplaceAllStringFunc(string(text), func(block string) string {
		var output strings.Builder
		output.WriteString("```console\n")
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ headgate "); ok {
				last = o.run(strings.TrimSpace(command))
				output.WriteString(line + last)
			}
		}
		return output.String() + "```"
	})
	if last != string(rules) {
		t.Errorf("the last export is\n%s\nwant the original file", last)
	}
	if *update {
		writeFile(t, filepath.Join(dir, "README.md"), got)
	} else if got != string(text) {
		t.Errorf("the output has changed to\n%s", got)
	}
}

// run returns the output of a command, with times and versions replaced by fixed values.
func (o *controlPlane) run(command string) string {
	o.t.Helper()
	var args []string
	for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(command, -1) {
		word = strings.Trim(word, `"`)
		if strings.HasSuffix(word, ".yaml") {
			word = filepath.Join(o.dir, word)
		}
		args = append(args, word)
	}
	got := start(o.t, append(args, o.args...)...)
	if want := map[bool]int{true: 1}[strings.Contains(command, "--dry-run")]; got.code != want {
		o.t.Errorf("headgate %s: exit %d: %s%s", command, got.code, got.out, got.errors)
	}
	text := strings.ReplaceAll(got.out+got.errors, o.dir+"/", "")
	text = regexp.MustCompile(`version [0-9a-f]{12}`).ReplaceAllString(text, "version …")
	return regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(text, "2026-12-04T18:00:00Z")
}
