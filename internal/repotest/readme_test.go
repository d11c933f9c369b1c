package repotest

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeCompiles tests that every line of Go in the README and in docs/library.md is in the file of examples, in order.
func TestReadmeCompiles(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	library, err := os.ReadFile("../../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	readme = append(readme, library...)
	examples, err := os.ReadFile("readme_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	rest := strings.Split(string(examples), "\n")
	lines := 0
	for i, block := range strings.Split(string(readme), "```") {
		code, isGo := strings.CutPrefix(block, "go\n")
		if i%2 == 0 || !isGo || strings.HasPrefix(code, "package main") { // make quickstart runs whole programs
			continue
		}
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			lines++
			found := false
			for n, have := range rest {
				if strings.TrimSpace(have) == line {
					rest, found = rest[n+1:], true
					break
				}
			}
			if !found {
				t.Fatalf("the README has %q, which the examples do not have at this point", line)
			}
		}
	}
	if lines < 15 {
		t.Errorf("only %d lines of Go in the README", lines)
	}
}
