package ratelimit

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var row = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|")

// documented are the rows of the table that tells users what changes. The model must know them, and no others.
func documented(t *testing.T) (all []string) {
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
	if got, want := slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(known)); !slices.Equal(got, want) {
		t.Errorf("the table has the rows %q, and the model knows %q", got, want)
	}
	return all
}
