package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeRules runs the README's rule test against the README's rules.
func TestReadmeRules(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, block := range blocks(string(readme), "yaml") {
		name, _ := titled(block)
		writeFile(t, filepath.Join(dir, name), block)
	}
	if o := start(t, "rules", "test", filepath.Join(dir, "rules_test.yaml")); o.code != 0 || !strings.Contains(o.out, "0 failed") {
		t.Errorf("exit %d: %s%s", o.code, o.out, o.errors)
	}
}
