package ruledoc_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/ruledoc"
)

// TestDocumentation runs every example of docs/rules.md: a block of rules followed by a block of tests.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for i, block := range strings.Split(string(text), "```") {
		if code, ok := strings.CutPrefix(block, "yaml\n"); ok && i%2 == 1 {
			blocks = append(blocks, code)
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

// TestDocumentationHasAllKeys compares the table of keys with the schema, which is compared with the code elsewhere.
func TestDocumentationHasAllKeys(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	type property struct {
		Ref     string `json:"$ref"`
		Default any    `json:"default"`
		Enum    []any  `json:"enum"`
	}
	var schema struct {
		Properties map[string]property `json:"properties"`
		Defs       map[string]struct {
			property
			Properties map[string]property `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(ruledoc.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		keys, _, _ := strings.Cut(line[1:], "|")
		for key := range strings.SplitSeq(keys, ",") {
			if key = strings.Trim(key, " `"); rows[key] == "" {
				rows[key] = line
			}
		}
	}
	keys := schema.Defs["rule"].Properties
	if len(keys) < 20 {
		t.Fatalf("%d keys in the schema", len(keys))
	}
	for key, p := range keys {
		if _, name, ok := strings.Cut(p.Ref, "#/$defs/"); ok {
			p = schema.Defs[name].property
		}
		words := slices.Clone(p.Enum)
		if p.Default != nil {
			words = append(words, p.Default)
		}
		if rows[key] == "" {
			t.Errorf("%s is not in the table of keys", key)
		}
		for _, word := range words {
			if !strings.Contains(rows[key], fmt.Sprintf("`%v`", word)) {
				t.Errorf("the row of %s does not have `%v`", key, word)
			}
		}
	}
	for key := range schema.Properties {
		if !strings.HasPrefix(key, "$") && !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("the document's key %s is nowhere", key)
		}
	}
}
