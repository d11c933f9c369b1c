package main

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
)

// rules never deny and are strict: every request reaches Redis.
const rules = `rules:
  - id: one
    match: {path: /one}
    by: [user]
    strict: true
    limit: 1000000/minute
  - id: three
    match: {path: /three}
    by: [user]
    strict: true
    limits: {second: 1000000/second, minute: 2000000/minute, hour: 5000000/hour}
`

// wire compares gRPC servers in front of the same Redis.
func wire(s *paired.Suite) {
	redis := testenv.Start(s, testenv.Redis)
	smallest := bare.Start(s, redis.Addr())
	ours := startHeadgate(s, testenv.BuildHeadgate(s), redis.Addr())
	bareConn, ourConn := bare.Dial(s, smallest.Address), bare.Dial(s, ours.GRPC)
	remote, err := client.New(client.Options{Addresses: []string{ours.GRPC}, Timeout: 5 * time.Second})
	testenv.NoError(s, err)
	s.Cleanup(remote.Close)
	send := bare.Stream(s, bareConn, callers)
	bareStream := func(caller, n int) error { return send(caller, users()[bare.Spread(caller, n)%subjects]) }
	variants := []paired.Variant{
		{Name: "a   bare gRPC echo", Do: bareUnary(bareConn, bare.EchoMethod), ServerCPU: smallest.CPU},
		{Name: "b   bare gRPC, smallest script", Do: bareUnary(bareConn, bare.CheckMethod), ServerCPU: smallest.CPU},
		{Name: "c   bare stream, smallest script", Do: bareStream, ServerCPU: smallest.CPU},
		{Name: "d1  Check, 1 limit", Do: ourUnary(ourConn, "/one"), ServerCPU: ours.CPU},
		{Name: "d3  Check, 3 limits", Do: ourUnary(ourConn, "/three"), ServerCPU: ours.CPU},
		{Name: "e1  CheckStream, 1 limit", Do: ourStream(remote, "/one"), ServerCPU: ours.CPU},
		{Name: "e3  CheckStream, 3 limits", Do: ourStream(remote, "/three"), ServerCPU: ours.CPU},
	}
	for i := range variants {
		variants[i].Callers = callers
	}
	title := fmt.Sprintf("gRPC, %d callers, %d subjects; server CPU without Redis", callers, subjects)
	got := s.Measure(title, s.Rounds, s.Slice, variants)
	fmt.Printf("decided without Redis: %d\n", notByStore.Load())
	s.ExpectMin("d1 ÷ b, unary, throughput", got.Ratio("d1", "b", paired.Throughput), 0.85)
	s.ExpectMin("e1 ÷ c, stream, throughput", got.Ratio("e1", "c", paired.Throughput), 0.75)
}

// startHeadgate starts the program as users do.
func startHeadgate(s *paired.Suite, program, redis string) *fleet.Node {
	return fleet.Start(s, program, fmt.Sprintf("redis: {address: \"redis://%s\", deadline: 1s}", redis), rules)
}
