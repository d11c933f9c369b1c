// Package peer starts the rate limiters that Headgate is compared with, configured as their documentation recommends.
package peer

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
)

// Ratelimit starts envoyproxy/ratelimit in front of a Redis and returns its gRPC service. configs are its config files by
// name; env is added to its environment.
func Ratelimit(t testing.TB, redis string, configs map[string]string, env ...string) *bare.Service {
	t.Helper()
	var address string
	dir := t.TempDir()
	testenv.NoError(t, os.Mkdir(filepath.Join(dir, "config"), 0o700))
	testenv.WriteFiles(t, filepath.Join(dir, "config"), configs)
	command := exec.CommandContext(t.Context(), testenv.Find(t, "ratelimit"))
	command.Env = append(os.Environ(),
		"RUNTIME_ROOT="+dir, "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis,
		"DISABLE_STATS=true", "LOG_LEVEL=warn")
	for _, name := range []string{"DEBUG_", "", "GRPC_"} {
		address = testenv.FreeAddress(t)
		host, port, err := net.SplitHostPort(address)
		testenv.NoError(t, err)
		command.Env = append(command.Env, name+"HOST="+host, name+"PORT="+port)
	}
	command.Env = append(command.Env, env...)
	return &bare.Service{Program: testenv.Run(t, command, address), Address: address}
}

// Headgate prepares a Headgate node in front of a Redis, with rules imported from the peer's config, as a migrating user does.
func Headgate(t testing.TB, redis, limits string) *fleet.Node {
	t.Helper()
	program := testenv.BuildHeadgate(t)
	// The peer has no deadline, so ours is long, for a saturated machine.
	n := fleet.New(t, program, fmt.Sprintf("redis: {address: \"redis://%s\", deadline: 1s}\nrules: rules", redis),
		map[string]string{"limits.yaml": limits})
	command := exec.CommandContext(t.Context(), program, "rules", "import", "--from", "envoy-ratelimit", "--dir", "rules", "limits.yaml")
	command.Dir = n.Dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return n
}

// MakeStrict makes the rules imported into a directory strict: Redis decides each request. Otherwise denials are cached briefly and
// busy counters are leased.
func MakeStrict(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	const algorithm = "    algorithm: fixed_window\n"
	for _, file := range files {
		text, err := os.ReadFile(file)
		testenv.NoError(t, err)
		strict := strings.ReplaceAll(string(text), algorithm, algorithm+"    strict: true\n")
		testenv.NoError(t, os.WriteFile(file, []byte(strict), 0o600))
	}
}
