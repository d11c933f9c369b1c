// Command gateways compares Headgate as Envoy's rate limit service with envoyproxy/ratelimit and a minimal baseline, a server
// that runs the smallest limiting script through a plain Redis client: first over gRPC, then through a real Envoy. Servers are
// separate processes. It ends with a verdict for each target of docs/performance.md and fails if one is missed.
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
		s.ExpectMaxValue("our decisions not allowed by Redis, per thousand", 1000*all.notAllowedByStore(s), 1)
	})
}
