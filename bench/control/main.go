// Command control shows on real servers that the control plane does what docs/control-plane.md promises: how soon changes are in force
// on all nodes, what large tables cost, and what callers of the nodes see while PostgreSQL fails or somebody writes nonsense to it. It
// prints a table, and fails if an aim is missed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

func main() {
	short := flag.Bool("short", false, "smaller tables, and only some of the faults")
	only := flag.String("only", "", "only parts with this `text` in their name: changes, poison, operators, faults, size")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, *short, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, short bool, only string) (failed int, err error) {
	scope := &paired.Scope{}
	defer scope.Close()
	w := &world{scope: scope, program: testenv.BuildHeadgate(scope), redis: testenv.Start(scope, testenv.Redis), short: short}
	r := newReport()
	if err := w.start(ctx); err != nil {
		return 0, err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, *world, *report) error
	}{{"changes", changes}, {"poison", poison}, {"operators", operators}, {"faults", faults}, {"size", size}} {
		if !strings.Contains(part.name, only) {
			continue
		}
		began := time.Now()
		if err := part.run(ctx, w, r); err != nil {
			r.line(part.name, says(false, "%v", err)) // and the next part may show more
		}
		if ctx.Err() != nil {
			return r.failed, ctx.Err()
		}
		fmt.Fprintf(os.Stderr, "%s took %.0f s\n", part.name, time.Since(began).Seconds())
	}
	return r.failed, nil
}
