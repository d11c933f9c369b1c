package repotest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSite tests that docs/index.md, of which the site's sidebar is made, lists every page once. The decisions in docs/adr are listed by
// their files.
func TestSite(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("../../docs/index.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for line := range strings.Lines(string(index)) {
		if link := markdownLink.FindStringSubmatch(line); strings.HasPrefix(line, "- [") && link != nil {
			listed[link[1]]++
		}
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		name := filepath.Base(page)
		if want := map[bool]int{true: 1}[name != "index.md"]; listed[name] != want {
			t.Errorf("docs/index.md lists %s %d times, want %d", name, listed[name], want)
		}
	}
	if len(pages) < 20 {
		t.Errorf("only %d pages found", len(pages))
	}
}
