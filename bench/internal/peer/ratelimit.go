// Package peer starts the limiters that we compare ourselves with, as their documentation says.
package peer

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// Ratelimit starts envoyproxy/ratelimit in front of a Redis and returns where it serves gRPC. configs are its files by
// name, env is added to its environment.
func Ratelimit(t testing.TB, redis string, configs map[string]string, env ...string) (server *testenv.Program, address string) {
	t.Helper()
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
	return testenv.Run(t, command, address), address
}
