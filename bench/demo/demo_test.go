package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/promapi"
	"github.com/headgate/headgate/internal/console"
	"github.com/headgate/headgate/internal/testenv"
)

// demoVariable makes this test binary the demo. Its value is the file for -env.
const demoVariable = "HEADGATE_DEMO_ENV"

func TestMain(m *testing.M) {
	if env := os.Getenv(demoVariable); env != "" {
		os.Args = []string{"demo", "-env", env}
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// demo is a running demo, as "make demo" starts it.
type demo struct {
	*testenv.Program
	t   *testing.T
	env string // file
}

// startDemo starts the demo and returns when it is ready.
func startDemo(t *testing.T) *demo {
	t.Helper()
	testenv.Long(t)
	d := &demo{t: t, env: filepath.Join(t.TempDir(), "demo.env")}
	program := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // G702: this program
	program.Env = append(os.Environ(), demoVariable+"="+d.env)
	d.Program = testenv.Spawn(t, program)
	const starts = 10 * patience // it compiles Headgate first
	for deadline := time.Now().Add(starts); !strings.Contains(d.Output(), "Ctrl-C stops everything"); time.Sleep(pause) {
		select {
		case <-d.Done():
			t.Fatalf("the demo ended:\n%s", d.Output())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready within %v:\n%s", starts, d.Output())
		}
	}
	return d
}

// run runs a command in a shell, as the demo's user, and returns its output, with addresses as containers have them.
func (d *demo) run(command string) string {
	d.t.Helper()
	shell := exec.CommandContext(d.t.Context(), "bash", "-c", ". "+quote(d.env)+"\n"+command)
	out, err := shell.CombinedOutput()
	if shell.ProcessState == nil {
		d.t.Fatal(err)
	}
	text := regexp.MustCompile(`redis://127\.0\.0\.1:\d+`).ReplaceAllString(string(out), "redis://redis:6379")
	return regexp.MustCompile(`http://127\.0\.0\.1:\d+`).ReplaceAllString(text, "http://127.0.0.1:8083")
}

// interrupt stops the demo as Ctrl-C does, and checks that nothing is left of it.
func (d *demo) interrupt() {
	d.t.Helper()
	script, err := os.ReadFile(d.env)
	testenv.NoError(d.t, err)
	dir := filepath.Dir(regexp.MustCompile(`--unix-socket '(.*)'`).FindStringSubmatch(string(script))[1])
	processes := descendants(d.PID())
	if len(processes) < 7 { // Redis, PostgreSQL, two nodes, the API, Envoy, Prometheus
		d.t.Errorf("%d processes", len(processes))
	}
	testenv.NoError(d.t, syscall.Kill(d.PID(), syscall.SIGINT))
	<-d.Done()
	if !strings.HasSuffix(d.Output(), "\nstopped\n") {
		d.t.Errorf("interrupted, it prints\n%s", d.Output())
	}
	if exists(dir) || exists(d.env) {
		d.t.Errorf("%s exists: %t, %s exists: %t", dir, exists(dir), d.env, exists(d.env))
	}
	for _, pid := range processes {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
			d.t.Errorf("a process is left: %s", stat)
		}
	}
}

// descendants returns the processes that a process and its descendants started.
func descendants(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, list := range lists {
		text, _ := os.ReadFile(list) // empty if the process has ended
		for _, field := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				all = slices.Concat(all, []int{child}, descendants(child))
			}
		}
	}
	return all
}

var update = flag.Bool("update", false, "write the outputs in docs/demo.md, and the picture of the session")

var consoles = regexp.MustCompile("(?s)```console\n(.*?)```")

// TestDemo follows docs/demo.md: it starts the demo, runs every command, compares what each prints, and stops the demo. With -update it
// writes the outputs and the picture of the session.
func TestDemo(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	const page, picture = "docs/demo.md", "docs/demo/session.svg"
	text := read(t, page)
	var session strings.Builder
	for _, block := range consoles.FindAllStringSubmatch(text, -1) {
		printed, differences := console.Follow(block[1], followPatience, d.run)
		session.WriteString(printed)
		if *update {
			text = strings.Replace(text, block[1], printed, 1)
		} else if len(differences) > 0 {
			t.Fatal(strings.Join(differences, "\n"))
		}
	}
	root := testenv.Repository(t)
	if drawn := console.Draw(session.String()); *update {
		testenv.NoError(t, os.WriteFile(filepath.Join(root, page), []byte(text), 0o600))
		testenv.NoError(t, os.WriteFile(filepath.Join(root, picture), []byte(drawn), 0o600))
	} else if !console.Same(read(t, picture), drawn) {
		t.Errorf("%s is not the picture of this session; -update draws it", picture)
	}
	d.checkPrometheus()
	if got, want := d.run("demo pause redis; demo kill grafana"), "demo: unknown command \"pause\"; try kill or start\n"+
		"demo: no service \"grafana\"; try redis, api, envoy, headgate-1, headgate-2 or prometheus\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	d.interrupt()
}

// followPatience is the time that a command may take to print what the page shows: Prometheus scrapes every 2 seconds.
const followPatience = 20 * time.Second

// checkPrometheus checks that each node decided by the override and that the dashboard has data, for which it needs requests at several
// times.
func (d *demo) checkPrometheus() {
	d.t.Helper()
	script, err := os.ReadFile(d.env)
	testenv.NoError(d.t, err)
	server := promapi.Server(regexp.MustCompile(`PROMETHEUS=http://(.*)`).FindStringSubmatch(string(script))[1])
	// Without the override a node admits at most 10 requests: half of both keys' limits.
	const allowed = `sum by (instance) (headgate_rule_decisions_total{result="allowed"}) > 10`
	dashboard := promapi.ReadDashboard(d.t, filepath.Join(testenv.Repository(d.t), "deploy"))
	for deadline := time.Now().Add(followPatience); ; {
		d.run("for i in 1 2 3; do curl -s -H 'X-API-Key: demo' $API/search; curl -s -H 'X-API-Key: other' $API/search; sleep 1; done")
		nodes, err := server.Query(d.t.Context(), allowed)
		testenv.NoError(d.t, err)
		empty, err := server.Empty(d.t.Context(), dashboard.Queries())
		testenv.NoError(d.t, err)
		if len(nodes) == 2 && slices.Equal(empty, noData) {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s: %d nodes, want 2; queries without data: %q, want %q", allowed, len(nodes), empty, noData)
		}
	}
}

// noData are the queries of the dashboard that have no data: the demo has no rules in shadow mode, no concurrency limits and one region.
var noData = []string{
	"Would-be denials A", "Would-be denials B", "Units in use A", "Mean time in use A", "Expired and repaired A", "Expired and repaired B",
	"Regions reached A", "Regions reached B", "Regions reached C", "Round trip to regions A",
	"Units and loan requests A", "Units and loan requests B", "Units and loan requests C", "Denials of shared limits A",
}

// TestContainersEnv: the script for containers defines what that of "make demo" defines.
func TestContainersEnv(t *testing.T) {
	t.Parallel()
	shell := exec.CommandContext(t.Context(), "bash", "-ec", `docker() { echo docker "$@"; }
		. deploy/compose/env.sh
		headgate explain GET /search
		demo kill redis
		echo $API $PROMETHEUS`)
	shell.Dir = testenv.Repository(t)
	out, err := shell.CombinedOutput()
	const compose = "docker compose -f deploy/compose/compose.yaml "
	want := compose + "run --rm cli explain GET /search\n" + compose + "kill redis\nhttp://127.0.0.1:8000 http://127.0.0.1:9090\n"
	if err != nil || string(out) != want {
		t.Errorf("%v, %s\nwant %s", err, out, want)
	}
	defined := regexp.MustCompile(`(?m)^[A-Za-z]+(?:=|\(\))`)
	script := newWorld(t).env()
	if here, there := defined.FindAllString(script, -1), defined.FindAllString(read(t, "deploy/compose/env.sh"), -1); !sameSet(here, there) {
		t.Errorf("make demo defines %v, containers %v", here, there)
	}
}

func sameSet(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
