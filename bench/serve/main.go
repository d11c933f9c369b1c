// Command serve measures the service beside the least that could do its work: a gRPC echo, and a gRPC server that runs the
// smallest limiting script through a bare Redis client, unary and over a stream. Servers are processes of their own. It
// ends with a verdict for each aim of docs/performance.md and fails if one is missed.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
)

const (
	callers  = 64
	subjects = 100_000
)

func main() {
	rounds := flag.Int("rounds", 15, "slices of each variant")
	slice := flag.Duration("slice", 400*time.Millisecond, "length of a slice")
	redis := flag.String("bare", "", "be the bare server, with Redis at this `address`; for this program's own use")
	listen := flag.String("listen", "", "where the bare server listens")
	flag.Parse()
	if *redis != "" {
		if err := bare.Serve(*listen, *redis); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	scope := &paired.Scope{}
	failed, err := run(scope, *rounds, *slice)
	scope.Exit(failed, err)
}

func run(scope *paired.Scope, rounds int, slice time.Duration) (failed int, err error) {
	aims := &paired.Aims{}
	verdicts := []func(){}
	for _, part := range []func(*paired.Scope, *paired.Aims, int, time.Duration) (func(), error){wire, middleware} {
		verdict, err := part(scope, aims, rounds, slice)
		if err != nil {
			return 0, err
		}
		verdicts = append(verdicts, verdict)
	}
	fmt.Println()
	for _, verdict := range verdicts {
		verdict()
	}
	return aims.Failed(), nil
}
