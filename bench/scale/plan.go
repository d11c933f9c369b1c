package main

import (
	"fmt"
	"math"
)

// The planned size.
const (
	perSecond = 500_000
	clients   = 50_000_000
	regions   = 3
)

// Assumptions of the plan.
const (
	callsPerDecision = 0.3  // for zipf traffic that is mostly below its limits; 1 if all rules are strict
	busy             = 0.6  // utilization of a core at peak
	overhead         = 1.25 // of memory: fragmentation, replication and client buffers
	serviceCPU       = 45   // µs per decision by unary gRPC; see docs/performance.md
)

// plan holds the measurements: bytes per subject, and microseconds and network bytes per decision of five limits.
type plan struct{ bytes, redisCPU, callerCPU, network float64 }

func (p plan) print() {
	up := func(x float64) int { return int(math.Ceil(x)) }
	calls := perSecond * callsPerDecision
	fmt.Printf("\n%d decisions/s, %d clients with %d limits, %d regions; all regions together:\n", perSecond, clients, limits, regions)
	fmt.Printf("  calls to Redis           %.0f/s (%.1f per decision; 1 if strict)\n", calls, callsPerDecision)
	fmt.Printf("  shards by CPU            %d (%.1f µs each, %.0f %% busy); strict %d\n", up(calls*p.redisCPU/1e6/busy), p.redisCPU, 100*busy,
		up(perSecond*p.redisCPU/1e6/busy))
	memory := clients * p.bytes * overhead / (1 << 30)
	fmt.Printf("  memory                   %.0f GB without replicas (%.0f bytes per client), %.0f GB if each region has all clients\n",
		memory, p.bytes, regions*memory)
	fmt.Printf("  cores of headgate serve  %d (%d µs each)\n", up(perSecond*serviceCPU/1e6/busy), serviceCPU)
	fmt.Printf("  cores in the library     %d (%.1f µs for a call to Redis, otherwise 1.5 µs)\n",
		up((calls*p.callerCPU+perSecond*1.5)/1e6/busy), p.callerCPU)
	fmt.Printf("  network to Redis         %.1f Gbit/s (%.0f bytes for a call, both ways)\n\n", calls*p.network*8/1e9, p.network)
}
