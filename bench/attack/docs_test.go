package attack

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityDocs checks that every test named in docs/security.md exists.
func TestSecurityDocs(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, name := range regexp.MustCompile(`Test[A-Za-z]+`).FindAllString(string(docs), -1) {
		missing[name] = true
	}
	if len(missing) < 50 {
		t.Errorf("docs/security.md names only %d tests", len(missing))
	}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z]+)\(`)
	err = filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // G122: of this checkout
		for _, found := range declared.FindAllSubmatch(text, -1) {
			delete(missing, string(found[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range missing {
		t.Errorf("docs/security.md names %s, which does not exist", name)
	}
}
