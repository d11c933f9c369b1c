// Command chaos breaks Redis under real servers of ours and shows what their callers saw: errors, latency, how much of a
// limit was admitted, how long it took to recover, and whether the store knows of everything in the end. It fails if an
// aim is missed.
package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

func main() {
	short := flag.Bool("short", false, "only some of the faults")
	only := flag.String("only", "", "only faults with this `text` in their name")
	docs := flag.String("docs", "", "put the table and the drawings into failure.md in this `directory`")
	kills := flag.Duration("kills", 0, "kill servers of ours at random instead, for this long")
	soak := flag.Duration("soak", 0, "break Redis in turn instead, for this long, and see whether the servers grow")
	flag.Parse()
	suite.Main(func(scope *suite.Scope) int {
		w := &world{Scope: scope, program: testenv.BuildHeadgate(scope), rate: usualRate}
		switch {
		case *kills > 0:
			return w.judgeKills(w.kill(*kills))
		case *soak > 0:
			return w.soak(*soak)
		}
		var chosen []*fault
		for _, f := range faults() {
			switch {
			case *short && !f.short || !strings.Contains(f.name, *only):
			case f.root && os.Geteuid() != 0:
				scope.Logf("%s: left out, since it needs root", f.name)
			default:
				chosen = append(chosen, f)
			}
		}
		return runFaults(scope, w.program, chosen, *docs)
	})
}

// runFaults lets one happen after the other: there is one machine.
func runFaults(scope *suite.Scope, program string, chosen []*fault, docs string) (missed int) {
	table := &strings.Builder{}
	out := io.MultiWriter(os.Stdout, table)
	_, _ = io.WriteString(out, header)
	for _, f := range chosen {
		result, rows := f.runUndisturbed(scope, program)
		for _, r := range rows {
			_, _ = io.WriteString(out, r.String())
			missed += count(len(r.failed) > 0)
		}
		if docs != "" && f.drawing != "" {
			result.draw(scope, filepath.Join(docs, "failure", f.drawing+".svg"))
		}
	}
	if docs != "" {
		writeTable(scope, filepath.Join(docs, "failure.md"), table.String())
	}
	return missed
}
