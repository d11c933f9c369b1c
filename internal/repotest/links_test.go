package repotest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fencedBlock  = regexp.MustCompile("(?s)```.*?```")
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks follows every relative link in the documentation, to the heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, links := map[string]string{}, 0
	for path, text := range textFiles(t) {
		if filepath.Ext(path) == ".md" && !strings.Contains(path, "testdata/") {
			pages[path] = fencedBlock.ReplaceAllString(text, "")
		}
	}
	for path, text := range pages {
		for _, found := range markdownLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			if err := follow(pages, path, found[1]); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links found", links)
	}
}

// follow reports what is wrong with a link on a page.
func follow(pages map[string]string, page, link string) error {
	target, anchor, _ := strings.Cut(link, "#")
	path := page
	if target != "" {
		path = filepath.Join(filepath.Dir(page), target)
	}
	if _, err := os.Stat(filepath.Join("..", "..", path)); err != nil {
		return fmt.Errorf("%s: no such file", link)
	}
	if anchor == "" {
		return nil
	}
	for _, title := range heading.FindAllStringSubmatch(pages[path], -1) {
		if anchorOf(title[1]) == anchor {
			return nil
		}
	}
	return fmt.Errorf("%s: no such heading", link)
}

// anchorOf returns the anchor that GitHub gives a heading.
func anchorOf(title string) string {
	title = strings.ToLower(strings.ReplaceAll(title, "`", ""))
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(title, ""), " ", "-")
}
