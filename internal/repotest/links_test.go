package repotest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
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
	root, links := testenv.Repository(t), 0
	pages := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == ".bin" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.Type().IsRegular() && filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path) //nolint:gosec // a file of this repository
			pages[path] = fencedBlock.ReplaceAllString(string(text), "")
			return err
		}
		return nil
	})
	testenv.NoError(t, err)
	for path, text := range pages {
		for _, found := range markdownLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			if err := follow(pages, path, found[1]); err != nil {
				t.Errorf("%s: %v", strings.TrimPrefix(path, root+"/"), err)
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
	if _, err := os.Stat(path); err != nil {
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
