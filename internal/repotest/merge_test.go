package repotest

import (
	"strings"
	"testing"
)

// TestMergeMarks finds what a merge with conflicts leaves in files that no compiler reads.
func TestMergeMarks(t *testing.T) {
	t.Parallel()
	for path, text := range textFiles(t) {
		for _, mark := range []string{"<", ">"} {
			if mark = "\n" + strings.Repeat(mark, 7) + " "; strings.Contains("\n"+text, mark) {
				t.Errorf("%s has %q", path, mark)
			}
		}
	}
}
