package main

import (
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/peer"
)

// limits are for the peer, and imported by ours: nobody is at the one, and everybody at the other.
const limits = `domain: api
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000000000}
  - key: denied
    rate_limit: {unit: day, requests_per_unit: 1}
`

// rules are the same for those who ask by attributes, and one that leaves all to Redis.
const rules = `rules:
  - id: strict
    match: {domain: api, entries: strict}
    by: [descriptor.strict]
    limit: 1000000000/day
    algorithm: fixed_window
    strict: true
  - id: user
    match: {path: /user}
    by: [user]
    limit: 1000000000/day
  - id: denied
    match: {path: /denied}
    by: [user]
    limit: 1/day
`

// service is a program to ask by gRPC.
type service struct {
	*bare.Service
	conn *grpc.ClientConn
}

// services are what is compared, those with counters in front of the same Redis.
type services struct {
	atOnce, theirs, theirsCached, ours service
	// here is which variants were decided by the service itself.
	here map[string]*tally
}

func (b *bench) startServices() *services {
	all := &services{here: map[string]*tally{}}
	all.atOnce.Service = bare.Start(b, "")
	// As its documentation recommends; its local cache, of what is denied, is off unless it is asked for.
	for of, env := range map[*service]string{&all.theirs: "", &all.theirsCached: "LOCAL_CACHE_SIZE_IN_BYTES=67108864"} {
		of.Service = peer.Ratelimit(b, b.redis.Addr(), map[string]string{"limits.yaml": limits},
			"REDIS_PIPELINE_WINDOW=150us", env)
	}
	ours := peer.Headgate(b, b.redis.Addr(), limits)
	ours.Write("rules/check.yaml", rules)
	ours.Start()
	all.ours.Service = &bare.Service{Program: ours.Program, Address: ours.GRPC}
	for _, of := range []*service{&all.atOnce, &all.theirs, &all.theirsCached, &all.ours} {
		of.conn = bare.Dial(b, of.Address)
	}
	return all
}

// cpu is what a service and Redis have used.
func (b *bench) cpu(of *service) func() time.Duration {
	return func() time.Duration { return of.CPU() + b.redisCPU() }
}
