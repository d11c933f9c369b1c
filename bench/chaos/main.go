// Command chaos breaks Redis under real Headgate servers and reports what their callers saw: errors, latency, units admitted
// relative to the limit, recovery time, and whether the store's counters are correct in the end. It fails if a target is missed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == slotNodeFlag {
		fmt.Fprintln(os.Stderr, serveSlots(os.Args[2], os.Args[3], os.Args[4]))
		os.Exit(2)
	}
	short := flag.Bool("short", false, "run only some of the faults")
	only := flag.String("only", "", "run only faults whose name contains `text`")
	docs := flag.String("docs", "", "write the table and the drawings to failure.md in this `directory`")
	kills := flag.Duration("kills", 0, "kill random Headgate servers for this long, instead of breaking Redis")
	soak := flag.Duration("soak", 0, "break Redis repeatedly for this long and check whether the servers grow")
	flag.Parse()
	suite.Main(func(scope *suite.Scope) int {
		w := &world{Scope: scope, program: testenv.BuildHeadgate(scope), rate: usualRate}
		switch {
		case *kills > 0:
			return w.judgeKills(w.runKills(*kills))
		case *soak > 0:
			return w.soak(*soak)
		}
		var chosen []*fault
		for _, f := range faults() {
			switch {
			case *short && !f.short || !strings.Contains(f.name, *only):
			case f.root && os.Geteuid() != 0:
				scope.Logf("%s: skipped: requires root", f.name)
			default:
				chosen = append(chosen, f)
			}
		}
		attempts, lease := tries, defaultLease
		if *short {
			attempts, lease = shortTries, shortLease
		}
		var slots []*slotFault
		for _, f := range slotFaults() {
			if (f.short || !*short) && strings.Contains(f.name, *only) {
				slots = append(slots, f)
			}
		}
		return runFaults(scope, w.program, chosen, attempts, *docs) + runSlotFaults(scope, slots, attempts, lease)
	})
}

// runFaults runs the faults sequentially, since they share a machine, and returns the number of rows that missed a target.
func runFaults(scope *suite.Scope, program string, chosen []*fault, attempts int, docs string) (missed int) {
	if len(chosen) == 0 {
		return 0
	}
	table := &strings.Builder{}
	out := io.MultiWriter(os.Stdout, table)
	_, _ = io.WriteString(out, header)
	for _, f := range chosen {
		result, rows := f.runUndisturbed(scope, program, attempts)
		for _, r := range rows {
			_, _ = io.WriteString(out, r.String())
			missed += boolToInt(len(r.failed) > 0)
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
