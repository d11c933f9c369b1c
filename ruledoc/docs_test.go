package ruledoc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/ruledoc"
)

// TestDocumentation runs every example of docs/rules.md and docs/cookbook.md: a block of rules followed by a block of tests.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	var blocks []string
	for _, page := range []string{"../docs/rules.md", "../docs/cookbook.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(text), "```") {
			if code, ok := strings.CutPrefix(block, "yaml\n"); ok && i%2 == 1 {
				blocks = append(blocks, code)
			}
		}
	}
	if len(blocks) < 26 || len(blocks)%2 != 0 {
		t.Fatalf("%d blocks of YAML, want at least 13 pairs", len(blocks))
	}
	dir := t.TempDir()
	for i := 0; i < len(blocks); i += 2 {
		name := fmt.Sprintf("example%02d", i/2+1)
		file := filepath.Join(dir, name+"_test.yaml")
		for _, err := range []error{
			os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(blocks[i]), 0o600),
			os.WriteFile(file, []byte("rules: ["+name+".yaml]\n"+blocks[i+1]), 0o600),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		ruledoc.Test(t, file)
	}
}
