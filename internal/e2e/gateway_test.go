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

// gateway is one that there is an example of.
type gateway struct {
	name string // of the program, and of its example
	args []string
	port string // in the example
	// closed are edits of the example, as its README has them, after which it fails closed, with one of the statuses.
	closed   []string
	statuses []int
	// patience is an edit that lets it wait for Headgate for longer than a busy machine takes, where answers are counted.
	patience []string
	// ownBody is true if a denial has another body than Headgate's.
	ownBody bool
	// believed is true if Headgate believes whoever asks, as it does over gRPC.
	believed bool
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
			closed: []string{"failure_mode_deny: false", "failure_mode_deny: true"}, statuses: []int{500}, believed: true,
			patience: []string{"timeout: 0.02s", "timeout: 0.5s"},
		},
	}
}

// run starts the gateway with its example, and edits, and returns where it listens.
func (g gateway) run(w *world, edits ...string) (address string) {
	w.t.Helper()
	address = testenv.FreeAddress(w.t)
	w.addresses[g.port] = strings.TrimPrefix(address, "127.0.0.1")
	w.addresses["abns@headgate"] = "abns@" + address // a name that all programs of the machine share
	command := exec.Command(testenv.Find(w.t, g.name), g.args...)
	edits = append(edits, g.patience...)
	if w.token != "" && g.name == "nginx" {
		edits = append(edits, `X-Headgate-Token ""`, `X-Headgate-Token "`+w.token+`"`)
	}
	command.Dir = w.render(g.name, edits...)
	// Caddy keeps files there.
	command.Env = append(os.Environ(), "HOME="+command.Dir, "XDG_CONFIG_HOME=", "XDG_DATA_HOME=")
	if w.token != "" {
		command.Env = append(command.Env, "HEADGATE_TOKEN="+w.token)
	}
	testenv.Run(w.t, command, address)
	return address
}

// TestGateways has one test at a time on the machine: Headgate waits for Redis for milliseconds only.
func TestGateways(t *testing.T) {
	binary := testenv.BuildHeadgate(t)
	for _, g := range gateways() {
		t.Run(g.name, func(t *testing.T) {
			testenv.Find(t, g.name)
			t.Run("limits", func(t *testing.T) { exact(t, binary, func(w *world) { testLimits(w, g) }) })
			t.Run("lies", func(t *testing.T) {
				exact(t, binary, func(w *world) { testLies(w, g) }, "by: [ip]", "by: [client]")
			})
			t.Run("changed rules", func(t *testing.T) { exact(t, binary, func(w *world) { testChangedRules(w, g) }) })
			t.Run("credentials", func(t *testing.T) { testCredentials(t, binary, g) })
			t.Run("fails open", func(t *testing.T) { testAway(newWorld(t, binary), g, []int{200}) })
			t.Run("fails closed", func(t *testing.T) { testAway(newWorld(t, binary), g, g.statuses, g.closed...) })
			if g.believed {
				t.Run("afterwards", func(t *testing.T) {
					exact(t, binary, func(w *world) { testAfterwards(w, g) }, "limit: 5/minute\n", "limit: 5/minute\n"+afterwards)
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
