package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestManPages checks that every command that the help lists has a page, and that pages do not depend on when they are written.
func TestManPages(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "man1"), t.TempDir()
	for _, dir := range []string{first, second} {
		if o := start(t, "man", dir); o != (outcome{}) {
			t.Fatalf("%+v", o)
		}
	}
	pages := 0
	everyCommand(func(cmd *cobra.Command, words []string) {
		if len(words) > 0 && !cmd.IsAvailableCommand() {
			return
		}
		name := strings.Join(append([]string{"headgate"}, words...), "-") + ".1"
		page, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Error(err)
			return
		}
		pages++
		if again, err := os.ReadFile(filepath.Join(second, name)); err != nil || !bytes.Equal(page, again) {
			t.Errorf("%s differs: %v", name, err)
		}
		for _, want := range []string{`"headgate ` + thisVersion().Headgate + `"`, ".SH OPTIONS"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
	})
	if files, err := filepath.Glob(filepath.Join(first, "*")); err != nil || len(files) != pages {
		t.Errorf("%d files for %d pages, %v", len(files), pages, err)
	}
}

// TestCompletions checks that the scripts are valid, for bash, and mention the commands.
func TestCompletions(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		o := start(t, "completion", shell)
		if o.code != 0 || !strings.Contains(o.out, "headgate") {
			t.Errorf("%s: %+v", shell, o)
		}
		if shell != "bash" {
			continue
		}
		parse := exec.CommandContext(t.Context(), "bash", "-n")
		parse.Stdin = strings.NewReader(o.out)
		if text, err := parse.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
