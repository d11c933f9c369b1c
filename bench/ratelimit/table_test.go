package ratelimit

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var row = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|")

// documentedRows returns the rows of the documented table of differences. They must be exactly those of the model.
func documentedRows(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/migrate-from-envoyproxy-ratelimit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What changes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, found := range row.FindAllStringSubmatch(section, -1) {
		all = append(all, found[1])
	}
	if got, want := slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(modelRows)); !slices.Equal(got, want) {
		t.Errorf("rows of the table %q, rows of the model %q", got, want)
	}
	return all
}
