// Command serve measures the service beside the least that could do its work: a gRPC echo, and a gRPC server that runs the
// smallest limiting script through a bare Redis client, unary and over a stream. Servers are processes of their own. It
// ends with a verdict for each aim of docs/performance.md and fails if one is missed.
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
	}{{"wire", wire}, {"middleware", middleware}, {"seeing", seeing}, {"seeing-served", seeingServed}}
	var names []string
	for _, part := range parts {
		names = append(names, part.name)
	}
	only := flag.String("only", "", "measure one `part` of it: "+strings.Join(names, ", "))
	paired.Main(15, 400*time.Millisecond, func(s *paired.Suite) {
		for _, part := range parts {
			if *only == "" || *only == part.name {
				part.measure(s)
			}
		}
	})
}
