package main

import (
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/peer"
)

// limits is the peer's config, which ours imports: one limit that no subject reaches and one that all exceed.
const limits = `domain: api
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000000000}
  - key: denied
    rate_limit: {unit: day, requests_per_unit: 1}
`

// rules are the same limits for requests with attributes, and a strict one.
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

// service is a gRPC server and a connection to it.
type service struct {
	*bare.Service
	conn *grpc.ClientConn
}

// services are the servers to compare. Those with counters share a Redis.
type services struct {
	atOnce, theirs, theirsCached, ours service
	// local counts the decisions of each variant that the service made without Redis.
	local map[string]*tally
}

func (b *bench) startServices() *services {
	all := &services{local: map[string]*tally{}}
	all.atOnce.Service = bare.Start(b, "")
	// As its documentation recommends. Its local cache of denials is off by default.
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

// cpu returns a function for the CPU time that a service and Redis have used.
func (b *bench) cpu(of *service) func() time.Duration {
	return func() time.Duration { return of.CPU() + b.redisCPU() }
}
