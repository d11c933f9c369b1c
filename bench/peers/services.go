package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/bench/internal/peer"
	"github.com/headgate/headgate/internal/testenv"
)

// limits are for the peer, and imported by ours: nobody is at the one, and everybody at the other.
const limits = `domain: api
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000000000}
  - key: refused
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
  - id: refused
    match: {path: /refused}
    by: [user]
    limit: 1/day
`

// service is a program to ask by gRPC.
type service struct {
	*testenv.Program
	address string
	conn    *grpc.ClientConn
}

// services are what is compared, those with counters in front of the same Redis.
type services struct {
	atOnce, theirs, theirsCached, ours service
	// here is which variants were decided by the service itself.
	here map[string]*tally
}

func (s *suite) startServices() (*services, error) {
	all := &services{here: map[string]*tally{}}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all.atOnce.address = testenv.FreeAddress(s.scope)
	command := exec.CommandContext(s.scope.Context(), self, "-listen", all.atOnce.address)
	all.atOnce.Program = testenv.Run(s.scope, command, all.atOnce.address)
	// As its documentation recommends; its local cache, of what is refused, is off unless it is asked for.
	for of, env := range map[*service]string{&all.theirs: "", &all.theirsCached: "LOCAL_CACHE_SIZE_IN_BYTES=67108864"} {
		of.Program, of.address = peer.Ratelimit(s.scope, s.redis.Addr(), map[string]string{"limits.yaml": limits},
			"REDIS_PIPELINE_WINDOW=150us", env)
	}
	if err := s.startOurs(all); err != nil {
		return nil, err
	}
	for _, of := range []*service{&all.atOnce, &all.theirs, &all.theirsCached, &all.ours} {
		conn, err := grpc.NewClient(of.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		s.scope.Cleanup(func() { _ = conn.Close() })
		of.conn = conn
	}
	return all, nil
}

// startOurs does what users do who have the peer now.
func (s *suite) startOurs(all *services) error {
	dir := s.scope.TempDir()
	all.ours.address = testenv.FreeAddress(s.scope)
	// The peer waits as long as it takes, on a machine that is full.
	config := fmt.Sprintf(`listen: {http: off, grpc: %s, ops: 127.0.0.1:0, admin: off}
redis: {address: "redis://%s", deadline: 1s}
rules: rules
`, all.ours.address, s.redis.Addr())
	binary := testenv.BuildHeadgate(s.scope)
	command := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(s.scope.Context(), binary, args...)
		c.Dir = dir
		return c
	}
	write := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	if err := write("limits.yaml", limits); err != nil {
		return err
	}
	imported := command("rules", "import", "--from", "envoy-ratelimit", "--out", "rules", "limits.yaml")
	if out, err := imported.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", imported, err, out)
	}
	if err := write("rules/check.yaml", rules); err != nil {
		return err
	}
	if err := write("headgate.yaml", config); err != nil {
		return err
	}
	all.ours.Program = testenv.Run(s.scope, command("serve", "--config", "headgate.yaml"), all.ours.address)
	return nil
}

// cpu is what a service and Redis have used.
func (s *suite) cpu(of *service) func() time.Duration {
	return func() time.Duration { return of.CPU() + s.redisCPU() }
}
