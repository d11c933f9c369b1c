package main

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/llmcost"
	"github.com/headgate/headgate/ruledoc"
)

// TestDocs checks the rules, prices and figures of docs/language-models.md.
func TestDocs(t *testing.T) {
	t.Parallel()
	const page = "../../docs/language-models.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rules, prices := "", ""
	for i, block := range strings.Split(string(text), "```") {
		code, ok := strings.CutPrefix(block, "yaml\n")
		switch {
		case !ok || i%2 == 0:
		case strings.HasPrefix(code, "models:"):
			prices += code
		default:
			rules += code
		}
	}
	document, err := ruledoc.Parse(page, []byte(rules))
	if err != nil || len(document.Source) != 3 {
		t.Fatalf("%+v, %v", document, err)
	}
	table, err := llmcost.Parse(page, []byte(prices))
	if err != nil {
		t.Fatal(err)
	}
	price, _ := table.Model("gpt-4o-mini")
	for want, usage := range map[int64]llmcost.Usage{
		153: {Input: 1200, Cached: 1000, Output: 80},
		304: {Input: 1000, Output: 256},
		458: {Input: 1000, Output: 512},
		300: {Input: 1000, Output: 250},
		348: {Input: 1000, Output: 330},
	} {
		if got := price.Cost(usage); got != want {
			t.Errorf("%+v costs %d, want %d", usage, got, want)
		}
	}
}
