package console_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/console"
)

func TestFollow(t *testing.T) {
	t.Parallel()
	const block = "$ one\n429: retry after 12 s\n$ two\n$ three\n  at 2026-11-16T12:00:00Z\n  x\n"
	outputs := map[string]string{"one": "429: retry after 6 min 0 s\n", "two": "", "three": "  at 2027-01-01T00:00:00Z\n  x\n"}
	run := func(command string) string { return outputs[command] }
	if printed, differences := console.Follow(block, 0, run); printed != block || differences != nil {
		t.Errorf("%s%v", printed, differences)
	}
	outputs["two"], outputs["three"] = "more", "  at 2027-01-01T00:00:00Z\n  y\n"
	want := strings.Replace(strings.Replace(block, "$ two\n", "$ two\nmore\n", 1), "  at 2026-11-16T12:00:00Z\n  x", strings.TrimRight(outputs["three"], "\n"), 1)
	if printed, differences := console.Follow(block, 0, run); printed != want || len(differences) != 2 {
		t.Errorf("%s%v", printed, differences)
	}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	got := console.Draw("$ a <b>\n429: denied\n" + strings.Repeat("word ", 30) + "\n")
	if lines := strings.Count(got, "<text "); lines != 4 || !strings.Contains(got, "#7ee787\" xml:space=\"preserve\">$ a &lt;b&gt;<") {
		t.Errorf("%d lines:\n%s", lines, got)
	}
}
