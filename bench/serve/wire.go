package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
)

// rules never refuse here, and are strict: every request reaches Redis.
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

// wire compares servers, all of them in front of the same Redis.
func wire(scope *paired.Scope, aims *paired.Aims, rounds int, slice time.Duration) (func(), error) {
	redis := testenv.Start(scope, testenv.Redis)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	bareAddress := testenv.FreeAddress(scope)
	smallest := testenv.Run(scope, exec.CommandContext(scope.Context(), self, "-bare", redis.Addr(), "-listen", bareAddress), bareAddress)
	ours, ourAddress, err := startHeadgate(scope, testenv.BuildHeadgate(scope), redis.Addr())
	if err != nil {
		return nil, err
	}
	bareConn, err := dial(scope, bareAddress)
	if err != nil {
		return nil, err
	}
	ourConn, err := dial(scope, ourAddress)
	if err != nil {
		return nil, err
	}
	stream, err := bareStream(bareConn)
	if err != nil {
		return nil, err
	}
	remote, err := client.New(client.Options{Addresses: []string{ourAddress}, Timeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	scope.Cleanup(remote.Close)
	variants := []paired.Variant{
		{Name: "a   bare gRPC echo", Callers: callers, Do: bareUnary(bareConn, bare.EchoMethod), ServerCPU: smallest.CPU},
		{Name: "b   bare gRPC, smallest script", Callers: callers, Do: bareUnary(bareConn, bare.CheckMethod), ServerCPU: smallest.CPU},
		{Name: "c   bare stream, smallest script", Callers: callers, Do: stream, ServerCPU: smallest.CPU},
		{Name: "d1  Check, 1 limit", Callers: callers, Do: ourUnary(ourConn, "/one"), ServerCPU: ours.CPU},
		{Name: "d3  Check, 3 limits", Callers: callers, Do: ourUnary(ourConn, "/three"), ServerCPU: ours.CPU},
		{Name: "e1  CheckStream, 1 limit", Callers: callers, Do: ourStream(remote, "/one"), ServerCPU: ours.CPU},
		{Name: "e3  CheckStream, 3 limits", Callers: callers, Do: ourStream(remote, "/three"), ServerCPU: ours.CPU},
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("gRPC, %d callers, %d subjects, %d rounds of %s; medians and quartiles; server is the gRPC server alone\n",
		callers, subjects, rounds, slice)
	paired.Table(variants, s)
	fmt.Printf("decided without Redis: %d\n", undecided.Load())
	by := func(i int) []paired.Sample { return s[variants[i].Name] }
	return func() {
		aims.AtLeast("d1 ÷ b, unary, throughput", paired.Ratio(by(3), by(1), paired.Throughput), 0.85)
		aims.AtLeast("e1 ÷ c, stream, throughput", paired.Ratio(by(5), by(2), paired.Throughput), 0.75)
	}, nil
}

func dial(scope *paired.Scope, address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		scope.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// startHeadgate starts the program as users do.
func startHeadgate(scope *paired.Scope, program, redis string) (server *testenv.Program, address string, err error) {
	dir := scope.TempDir()
	address = testenv.FreeAddress(scope)
	config := fmt.Sprintf("listen: {http: off, grpc: %s, ops: 127.0.0.1:0, admin: off}\nredis: {address: \"redis://%s\", deadline: 1s}\nrules: rules.yaml\n",
		address, redis)
	for name, text := range map[string]string{"rules.yaml": rules, "config.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, "", err
		}
	}
	serve := exec.CommandContext(scope.Context(), program, "serve", "--config", filepath.Join(dir, "config.yaml"))
	return testenv.Run(scope, serve, address), address, nil
}
