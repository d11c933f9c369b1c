package main

import (
	"path/filepath"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/peer"
	"github.com/headgate/headgate/internal/testenv"
)

// limits is the peer's config, which ours imports. The limits are never reached, and every request reaches Redis.
const limits = `domain: api
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000000}
  - key: tenant
    rate_limit: {unit: hour, requests_per_unit: 1000000}
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 1000000}
`

// services are the servers to compare, all in front of the same Redis.
type services struct {
	redis                      *testenv.Server
	atOnce, bare, theirs, ours *bare.Service
	node                       *fleet.Node // ours
}

func startServices(s *paired.Suite) *services {
	all := &services{redis: testenv.Start(s, testenv.Redis)}
	all.atOnce, all.bare = bare.Start(s, ""), bare.Start(s, all.redis.Addr())
	// As its documentation recommends. No window of 0 to 500 µs, and no number of 2 to 64 connections, was clearly faster.
	all.theirs = peer.Ratelimit(s, all.redis.Addr(),
		map[string]string{"limits.yaml": limits}, "REDIS_PIPELINE_WINDOW=150us")
	all.node = peer.Headgate(s, all.redis.Addr(), limits)
	peer.MakeStrict(s, filepath.Join(all.node.Dir, "rules"))
	all.node.Start()
	all.ours = &bare.Service{Program: all.node.Program, Address: all.node.GRPC}
	return all
}

// notAllowedByStore returns the fraction of our decisions that Redis did not make or that were denied.
func (all *services) notAllowedByStore(s *paired.Suite) float64 {
	const name = "headgate_decisions_total"
	decisions, err := all.node.Metric(s.Context(), name)
	testenv.NoError(s, err)
	stored, err := all.node.Metric(s.Context(), name, `path="store"`, `result="allowed"`)
	testenv.NoError(s, err)
	if decisions == 0 {
		s.Fatal("our service has made no decisions")
	}
	return 1 - stored/decisions
}

// expectKeys fails unless a request for a new subject creates want keys in Redis.
func (all *services) expectKeys(s *paired.Suite, name string, want int64, send func() error) {
	size := func() int64 {
		n, _ := all.redis.Must(s, "DBSIZE").(int64)
		return n
	}
	before := size()
	testenv.NoError(s, send())
	if got := size() - before; got != want {
		s.Fatalf("%s: a new subject has %d keys in Redis, want %d: another service may have responded", name, got, want)
	}
}
