// Command gateways measures us as Envoy's rate limit service, beside envoyproxy/ratelimit and the least that could do
// it: a server that runs the smallest limiting script by a bare Redis client. First by gRPC, then through a real Envoy.
// Servers are processes of their own. It ends with a verdict for each aim of docs/performance.md and fails if one is
// missed.
package main

import (
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
)

const subjects = 100_000

func main() {
	bare.Main()
	paired.Main(15, 400*time.Millisecond, func(s *paired.Suite) {
		all := startServices(s)
		direct(s, all)
		throughEnvoy(s, all)
		s.ExpectMaxValue("answers of ours without Redis, of a thousand", 1000*all.lost(s), 1)
	})
}
