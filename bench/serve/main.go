// Command serve measures the service beside the least that could do its work: a gRPC echo, and a gRPC server that runs the
// smallest limiting script through a bare Redis client, unary and over a stream. Servers are processes of their own. It
// ends with a verdict for each aim of docs/performance.md and fails if one is missed.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
)

const (
	callers  = 64
	subjects = 100_000
)

// parts are what is measured, each with an answer of its own: it prints what it has seen, and judges in the end.
var parts = []struct {
	name    string
	measure func(*paired.Scope, *paired.Aims, int, time.Duration) (verdict func(), err error)
}{{"wire", wire}, {"middleware", middleware}, {"seeing", seeing}, {"seeing-served", seeingServed}}

func names() []string {
	all := make([]string, len(parts))
	for i := range parts {
		all[i] = parts[i].name
	}
	return all
}

func main() {
	only := flag.String("only", "", "measure one `part` of it: "+strings.Join(names(), ", "))
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
	failed, err := run(scope, *only, *rounds, *slice)
	scope.Exit(failed, err)
}

func run(scope *paired.Scope, only string, rounds int, slice time.Duration) (failed int, err error) {
	aims := &paired.Aims{}
	verdicts := []func(){}
	for _, part := range parts {
		if only != "" && only != part.name {
			continue
		}
		verdict, err := part.measure(scope, aims, rounds, slice)
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
