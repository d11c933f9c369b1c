//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gateway is one that there is an example of.
type gateway struct {
	name     string   // of the example
	programs []string // where it may be
	args     []string
	port     string // in the example
	// closed are edits of the example, as its README has them, after which it fails closed, with one of the statuses.
	closed   []string
	statuses []int
	// ownBody is true if a refusal has another body than Headgate's.
	ownBody bool
	// believed is true if Headgate believes whoever asks, as it does over gRPC.
	believed bool
}

func gateways() []gateway {
	return []gateway{
		{
			name: "nginx", programs: []string{"nginx", "/usr/sbin/nginx"},
			args: []string{"-p", ".", "-c", "nginx.conf", "-e", "stderr"}, port: ":8001",
			closed: []string{"return 204;", "return 403;"}, statuses: []int{503}, ownBody: true,
		},
		{
			name: "haproxy", programs: []string{"haproxy", "/usr/sbin/haproxy"},
			args: []string{"-f", "haproxy.cfg"}, port: ":8002",
			closed: []string{" open", " closed"}, statuses: []int{503},
		},
		{
			name: "caddy", programs: []string{"../../.bin/caddy-v2.11.7", "caddy"}, // where make deps puts it, or any
			args: []string{"run"}, port: ":8003",
			closed: []string{"import fail_open", ""}, statuses: []int{502, 504},
		},
		{
			name: "envoy", programs: []string{"../../.bin/envoy-v1.40.0", "envoy"},
			args: []string{"-c", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id", "-l", "warn"}, port: ":8004",
			closed: []string{"failure_mode_deny: false", "failure_mode_deny: true"}, statuses: []int{500}, believed: true,
		},
	}
}

// program finds the gateway. If it is not there the test ends: skipped on a laptop, failed in CI, where a skip would
// pass for a result.
func (g gateway) program(t testing.TB) string {
	t.Helper()
	for _, name := range g.programs {
		if path, err := exec.LookPath(name); err == nil {
			if path, err = filepath.Abs(path); err != nil { // it runs in the directory of the example
				t.Fatal(err)
			}
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed: run make deps", g.name)
	}
	t.Skipf("%s is not installed: run make deps", g.name)
	return ""
}

// run starts the gateway with its example, and edits, and returns where it listens.
func (g gateway) run(w *world, edits ...string) (address string) {
	w.t.Helper()
	program := g.program(w.t)
	address = freeAddress(w.t)
	w.addresses[g.port] = strings.TrimPrefix(address, "127.0.0.1")
	w.addresses["abns@headgate"] = "abns@" + address // a name that all programs of the machine share
	command := exec.Command(program, g.args...)
	command.Dir = w.render(g.name, edits...)
	// Caddy keeps files there.
	command.Env = append(os.Environ(), "HOME="+command.Dir, "XDG_CONFIG_HOME=", "XDG_DATA_HOME=")
	start(w.t, address, command)
	return address
}

// build makes the program that is under test.
func build(t testing.TB) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "headgate")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/headgate").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// TestGateways has one test at a time on the machine: Headgate waits for Redis for milliseconds only.
func TestGateways(t *testing.T) {
	binary := build(t)
	for _, g := range gateways() {
		t.Run(g.name, func(t *testing.T) {
			g.program(t)
			t.Run("limits", func(t *testing.T) { exact(t, binary, func(w *world) { testLimits(w, g) }) })
			t.Run("lies", func(t *testing.T) {
				exact(t, binary, func(w *world) { testLies(w, g) }, "by: [ip]", "by: [client]")
			})
			t.Run("changed rules", func(t *testing.T) { exact(t, binary, func(w *world) { testChangedRules(w, g) }) })
			t.Run("fails open", func(t *testing.T) { testAway(newWorld(t, binary), g, []int{200}) })
			t.Run("fails closed", func(t *testing.T) { testAway(newWorld(t, binary), g, g.statuses, g.closed...) })
			if g.believed {
				return
			}
			t.Run("not trusted", func(t *testing.T) {
				exact(t, binary, func(w *world) { testNotTrusted(w, g) }, "127.0.0.1/32", "192.0.2.1/32")
			})
		})
	}
	t.Run("shared", func(t *testing.T) { exact(t, binary, testShared) })
}

// exact is for a test that counts. It is made again, in a world of its own, if it failed and Redis was late.
func exact(t *testing.T, binary string, test func(*world), edits ...string) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		held := &heldBack{TB: t}
		w := newWorld(held, binary, edits...)
		test(w)
		if len(held.errors) == 0 {
			return
		}
		problems := strings.Join(held.errors, "\n")
		if attempt == 5 || !w.late() {
			t.Fatal(problems)
		}
		t.Logf("Redis was late: once more, in spite of\n%s", problems)
	}
}

// heldBack is a test whose errors are not yet told.
type heldBack struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (h *heldBack) Error(args ...any) { h.Errorf("%s", fmt.Sprint(args...)) }

func (h *heldBack) Errorf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errors = append(h.errors, fmt.Sprintf(format, args...))
}

func (h *heldBack) Fatalf(format string, args ...any) {
	h.Helper()
	h.Errorf(format, args...)
	h.Fatal(strings.Join(h.errors, "\n"))
}
