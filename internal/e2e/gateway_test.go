package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// gateway is a gateway with an example.
type gateway struct {
	name string // of the program and of its example
	args []string
	port string // in the example
	// closed are the edits in the example's README that make it fail closed, with one of the statuses.
	closed   []string
	statuses []int
	// longTimeout is an edit that raises the timeout for Headgate on a busy machine, for tests that count.
	longTimeout []string
	// ownBody is true if the gateway replaces the body of a denial.
	ownBody bool
	// trusted is true if Headgate trusts every caller, as over gRPC.
	trusted bool
}

func gateways() []gateway {
	return []gateway{
		{
			name: "nginx",
			args: []string{"-p", ".", "-c", "nginx.conf", "-e", "stderr", "-g", "master_process off;"}, port: ":8001",
			closed: []string{"return 204;", "return 403;"}, statuses: []int{503}, ownBody: true,
		},
		{
			name: "haproxy",
			args: []string{"-f", "haproxy.cfg"}, port: ":8002",
			closed: []string{" open", " closed"}, statuses: []int{503},
		},
		{
			name: "caddy",
			args: []string{"run"}, port: ":8003",
			closed: []string{"import fail_open", ""}, statuses: []int{502, 504},
		},
		{
			name: "envoy",
			args: []string{"-c", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id", "-l", "warn"}, port: ":8004",
			closed: []string{"failure_mode_deny: false", "failure_mode_deny: true"}, statuses: []int{500}, trusted: true,
			longTimeout: []string{"timeout: 0.02s", "timeout: 0.5s"},
		},
	}
}

// run starts the gateway with its edited example and returns its address.
func (g gateway) run(w *world, edits ...string) (address string) {
	w.t.Helper()
	address = testenv.FreeAddress(w.t)
	w.addresses[g.port] = strings.TrimPrefix(address, "127.0.0.1")
	w.addresses["abns@headgate"] = "abns@" + address // abstract socket names are shared by all programs of the machine
	command := exec.Command(testenv.Find(w.t, g.name), g.args...)
	edits = append(edits, g.longTimeout...)
	if w.token != "" && g.name == "nginx" {
		edits = append(edits, `X-Headgate-Token ""`, `X-Headgate-Token "`+w.token+`"`)
	}
	command.Dir = w.render(g.name, edits...)
	// Caddy stores files in these directories.
	command.Env = append(os.Environ(), "HOME="+command.Dir, "XDG_CONFIG_HOME=", "XDG_DATA_HOME=")
	if w.token != "" {
		command.Env = append(command.Env, "HEADGATE_TOKEN="+w.token)
	}
	testenv.Run(w.t, command, address)
	return address
}

// TestGateways runs one test at a time, because Headgate waits only milliseconds for Redis.
func TestGateways(t *testing.T) {
	binary := testenv.BuildHeadgate(t)
	for _, g := range gateways() {
		t.Run(g.name, func(t *testing.T) {
			testenv.Find(t, g.name)
			t.Run("init", func(t *testing.T) {
				exactIn(t, func(t testing.TB) *world { return newWorldOf(t, binary, g.name) }, func(w *world) { testLimits(w, g) })
			})
			t.Run("limits", func(t *testing.T) { exact(t, binary, func(w *world) { testLimits(w, g) }) })
			t.Run("forged headers", func(t *testing.T) {
				exact(t, binary, func(w *world) { testForgedHeaders(w, g) }, "by: [ip]", "by: [client]")
			})
			t.Run("changed rules", func(t *testing.T) { exact(t, binary, func(w *world) { testChangedRules(w, g) }) })
			t.Run("credentials", func(t *testing.T) { testCredentials(t, binary, g) })
			t.Run("fails open", func(t *testing.T) { testUnavailable(newWorld(t, binary), g, []int{200}) })
			t.Run("fails closed", func(t *testing.T) { testUnavailable(newWorld(t, binary), g, g.statuses, g.closed...) })
			if g.trusted {
				t.Run("cost after response", func(t *testing.T) {
					exact(t, binary, func(w *world) { testCostAfterResponse(w, g) }, "limit: 5/minute\n", "limit: 5/minute\n"+bytesRule)
				})
				return
			}
			t.Run("not trusted", func(t *testing.T) {
				exact(t, binary, func(w *world) { testNotTrusted(w, g) }, "127.0.0.1/32", "192.0.2.1/32")
			})
		})
	}
	t.Run("shared", func(t *testing.T) { exact(t, binary, testShared) })
}

// exact runs a test that counts. It repeats a failed test, in a new world, if Redis was late.
func exact(t *testing.T, binary string, test func(*world), edits ...string) {
	t.Helper()
	exactIn(t, func(t testing.TB) *world { return newWorld(t, binary, edits...) }, test)
}

// exactIn runs a test that counts, in a world of another kind.
func exactIn(t *testing.T, start func(testing.TB) *world, test func(*world)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		collected := &deferredErrors{TB: t}
		w := start(collected)
		test(w)
		if len(collected.errors) == 0 {
			return
		}
		problems := strings.Join(collected.errors, "\n")
		if attempt == 5 || !w.late() {
			t.Fatal(problems)
		}
		t.Logf("Redis was late; repeating after\n%s", problems)
	}
}

// deferredErrors collects the errors of a test instead of reporting them.
type deferredErrors struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (h *deferredErrors) Error(args ...any) { h.Errorf("%s", fmt.Sprint(args...)) }

func (h *deferredErrors) Errorf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errors = append(h.errors, fmt.Sprintf(format, args...))
}

func (h *deferredErrors) Fatalf(format string, args ...any) {
	h.Helper()
	h.Errorf(format, args...)
	h.Fatal(strings.Join(h.errors, "\n"))
}
