// Command chaos breaks Redis under real servers of ours and shows what their callers saw: errors, latency, how much of a
// limit was admitted, how long it took to recover, and whether the store knows of everything in the end. It fails if an
// aim is missed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// options are the flags.
type options struct {
	short       bool
	only        string
	docs        string
	kills, soak time.Duration
}

func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "only some of the faults")
	flag.StringVar(&o.only, "only", "", "only faults with this `text` in their name")
	flag.StringVar(&o.docs, "docs", "", "put the table and the drawings into failure.md in this `directory`")
	flag.DurationVar(&o.kills, "kills", 0, "kill servers of ours at random instead, for this long")
	flag.DurationVar(&o.soak, "soak", 0, "break Redis in turn instead, for this long, and see whether the servers grow")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) (failed int, err error) {
	scope := &paired.Scope{}
	defer scope.Close()
	program := testenv.BuildHeadgate(scope)
	switch {
	case o.kills > 0:
		return runKills(ctx, program, o.kills)
	case o.soak > 0:
		return runSoak(ctx, program, o.soak)
	}
	return runFaults(ctx, program, o)
}

// runFaults lets one happen after the other: there is one machine.
func runFaults(ctx context.Context, program string, o *options) (failed int, err error) {
	table := &strings.Builder{}
	out := io.MultiWriter(os.Stdout, table)
	_, _ = io.WriteString(out, header)
	for _, f := range faults() {
		if o.short && !f.short || !strings.Contains(f.name, o.only) {
			continue
		}
		if f.root && os.Geteuid() != 0 {
			fmt.Fprintf(os.Stderr, "%s: left out, since it needs root\n", f.name)
			continue
		}
		result, rows, err := f.runUndisturbed(ctx, program)
		if err != nil {
			return failed, fmt.Errorf("%s: %w", f.name, err)
		}
		for _, r := range rows {
			_, _ = io.WriteString(out, r.String())
			if len(r.failed) > 0 {
				failed++
			}
		}
		if o.docs != "" && f.drawing != "" {
			if err := result.draw(filepath.Join(o.docs, "failure", f.drawing+".svg")); err != nil {
				return failed, err
			}
		}
	}
	if o.docs != "" {
		err = writeTable(filepath.Join(o.docs, "failure.md"), table.String())
	}
	return failed, err
}
