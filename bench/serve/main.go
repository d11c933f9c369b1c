// Command serve compares the service with minimal baselines: a gRPC echo, and a gRPC server that runs the smallest limiting
// script through a plain Redis client, unary and over a stream. Servers are separate processes. It ends with a verdict for each
// target of docs/performance.md and fails if one is missed.
package main

import (
	"flag"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
)

const (
	callers  = 64
	subjects = 100_000
)

func main() {
	bare.Main()
	parts := []struct {
		name    string
		measure func(*paired.Suite)
	}{{"wire", wire}, {"middleware", middleware}, {"telemetry", observability}, {"telemetry-served", observabilityServed}}
	var names []string
	for _, part := range parts {
		names = append(names, part.name)
	}
	only := flag.String("only", "", "measure only this `part`: "+strings.Join(names, ", "))
	paired.Main(15, 400*time.Millisecond, func(s *paired.Suite) {
		for _, part := range parts {
			if *only == "" || *only == part.name {
				part.measure(s)
			}
		}
	})
}
