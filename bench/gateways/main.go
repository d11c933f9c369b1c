// Command gateways measures us as Envoy's rate limit service, beside envoyproxy/ratelimit and the least that could do
// it: a server that runs the smallest limiting script by a bare Redis client. First by gRPC, then through a real Envoy.
// Servers are processes of their own. It ends with a verdict for each aim of docs/performance.md and fails if one is
// missed.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
)

const subjects = 100_000

func main() {
	rounds := flag.Int("rounds", 15, "slices of each variant")
	slice := flag.Duration("slice", 400*time.Millisecond, "length of a slice")
	listen := flag.String("listen", "", "be a bare server that listens at this `address`; for this program's own use")
	redis := flag.String("redis", "", "`address` of the bare server's Redis; without one it answers at once")
	flag.Parse()
	if *listen != "" {
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

// part measures and prints a part. What it returns judges its aims.
type part func(*paired.Scope, *services, *paired.Aims, int, time.Duration) (verdict func(), err error)

func run(scope *paired.Scope, rounds int, slice time.Duration) (failed int, err error) {
	all, err := startServices(scope)
	if err != nil {
		return 0, err
	}
	aims := &paired.Aims{}
	verdicts := []func(){}
	for _, part := range []part{direct, throughEnvoy} {
		verdict, err := part(scope, all, aims, rounds, slice)
		if err != nil {
			return 0, err
		}
		verdicts = append(verdicts, verdict)
	}
	lost, err := all.lost(scope.Context())
	if err != nil {
		return 0, err
	}
	fmt.Println()
	for _, verdict := range verdicts {
		verdict()
	}
	aims.AtMost("answers of ours without Redis, of a thousand", paired.Of([]float64{1000 * lost}), 1)
	return aims.Failed(), nil
}
