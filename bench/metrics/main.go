// Command metrics shows on real servers that whoever is on call sees what happens: a real Prometheus scrapes them while they are
// under load and in trouble. Every query of the dashboard has an answer, alerts are quiet before the trouble and fire in it, and
// the number of series does not grow with that of the callers. It prints a table, and fails if an aim is missed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
)

// longest is the end of a run that hangs.
const longest = 5 * time.Minute

func main() {
	short := flag.Bool("short", false, "fewer callers and less waiting")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, longest)
	scope := &paired.Scope{}
	failed, err := run(ctx, scope, *short)
	cancel()
	stop()
	scope.Exit(failed, err)
}

func run(ctx context.Context, scope *paired.Scope, short bool) (failed int, err error) {
	d, err := readDeploy("../deploy")
	if err != nil {
		return 0, err
	}
	w, err := start(ctx, scope, d)
	if err != nil {
		return 0, err
	}
	if err := w.watch(); err != nil {
		return 0, err
	}
	steady, subjects := 20*time.Second, 1_000_000
	if short {
		steady, subjects = 4*time.Second, 100_000
	}
	r := newReport()
	load := w.load(ctx)
	for _, part := range []func() error{
		func() error { return w.quiet(ctx, r, steady) },
		func() error { return w.trouble(ctx, r) },
		func() error { return w.aftermath(ctx, r) },
		func() error { return w.panels(ctx, r) },
		func() error { load(); return w.tools(ctx, r) },
		func() error { return w.series(ctx, r, subjects) },
		func() error { return w.crowded(ctx, r) },
		func() error { return w.end(ctx, r) },
	} {
		if err := part(); err != nil {
			r.line("an error", false, "%v", err) // and the next part may show more
		}
		if ctx.Err() != nil {
			return r.failed, fmt.Errorf("not done within %v: %w", longest, ctx.Err())
		}
	}
	return r.failed, nil
}

// report is the table.
type report struct{ failed int }

func newReport() *report {
	fmt.Print("| what | seen | |\n|---|---|---|\n")
	return &report{}
}

func (r *report) line(what string, met bool, format string, args ...any) {
	verdict := "PASS"
	if !met {
		r.failed++
		verdict = "FAIL"
	}
	fmt.Printf("| %s | %s | %s |\n", what, fmt.Sprintf(format, args...), verdict)
}
