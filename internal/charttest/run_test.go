package charttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// node is a server that runs as the container of a pod does.
type node struct {
	t                *testing.T
	pod              *pod
	http, ops, admin string // URLs
	program          *testenv.Program
}

// start gives the listeners of the pod free ports of this machine, and runs its program.
func (p *pod) start(t *testing.T) *node {
	t.Helper()
	config := p.config()
	text, err := os.ReadFile(config)
	testenv.NoError(t, err)
	n := &node{t: t, pod: p}
	addresses := map[string]string{}
	lines := strings.Split(string(text), "\n")
	for name, port := range map[string]string{"http": "8080", "grpc": "8081", "ops": "8082", "admin": "8083"} {
		at := slices.IndexFunc(lines, func(line string) bool {
			line, _, _ = strings.Cut(line, " #")
			return strings.HasPrefix(strings.TrimSpace(line), name+": ") && strings.HasSuffix(strings.Trim(line, `"`), ":"+port)
		})
		if at < 0 {
			continue // off
		}
		addresses[name] = testenv.FreeAddress(t)
		key, _, _ := strings.Cut(lines[at], ":")
		lines[at] = key + ": " + addresses[name]
	}
	volume := &volume{dir: filepath.Dir(config), updates: 1}
	volume.write(t, map[string]string{"config.yaml": strings.Join(lines, "\n")})
	n.http, n.ops, n.admin = "http://"+addresses["http"], "http://"+addresses["ops"], "http://"+addresses["admin"]
	n.run()
	return n
}

// run runs the program with the arguments of the container.
func (n *node) run() {
	n.t.Helper()
	var args []string
	for _, arg := range at[[]any](n.pod.container, "args") {
		args = append(args, strings.ReplaceAll(arg.(string), "--config=", "--config="+n.pod.root))
	}
	n.program = testenv.Run(n.t, n.pod.headgate(args...), strings.TrimPrefix(n.ops, "http://"))
}

// get returns the status and body of a response. Headers are given as name and value by turns.
func (n *node) get(url string, headers ...string) (int, string) {
	n.t.Helper()
	request, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, url, nil)
	testenv.NoError(n.t, err)
	for pair := range slices.Chunk(headers, 2) {
		if pair[1] != "" {
			request.Header.Set(pair[0], pair[1])
		}
	}
	response, err := http.DefaultClient.Do(request)
	testenv.NoError(n.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testenv.NoError(n.t, err)
	return response.StatusCode, string(body)
}

// authorize returns the statuses of several requests by forward-auth.
func (n *node) authorize(token string, requests int) (statuses []int) {
	n.t.Helper()
	for range requests {
		status, _ := n.get(n.http+"/v1/authorize", "X-Headgate-Token", token)
		statuses = append(statuses, status)
	}
	return statuses
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// ready waits until the server has rules and Redis, and returns the version of the rules.
func (n *node) ready() (version string) {
	n.t.Helper()
	var body string
	eventually(n.t, "ready", func() bool {
		var status int
		status, body = n.get(n.ops + "/readyz")
		return status == http.StatusOK && strings.Contains(body, `"redis":{"status":"ok"`)
	})
	var report struct{ Rules struct{ Version string } }
	testenv.NoError(n.t, json.Unmarshal([]byte(body), &report))
	return report.Rules.Version
}

var fiveThenDenied = []int{200, 200, 200, 200, 200, 429}

// TestRun runs the server with the files that the chart renders: it decides for callers with the generated token, loads rules and
// tokens when the kubelet replaces them, and has an admin API on loopback.
func TestRun(t *testing.T) {
	t.Parallel()
	extent(t)
	redis := testenv.Start(t, testenv.Redis)
	redis.Must(t, "ACL", "SETUSER", "headgate", "on", ">secret of a user", "~*", "&*", "+@all")
	all := chart{testenv.Find(t, "helm"), chartDir(t)}.render(t, values{
		"redis":  values{"address": "redis://" + redis.Addr(), "username": "headgate", "existingSecret": "redis"},
		"config": values{"redis": values{"deadline": "1s"}}, // so that a busy machine does not decide locally
		"rules":  values{"files": values{"rules.yaml": values{"rules": []any{values{"id": "by-ip", "by": []any{"ip"}, "limit": "5/hour"}}}}},
	})
	p := newPod(t, all, fixtures(t))
	p.runTest(all, "doctor", "")
	n := p.start(t)
	version := n.ready()
	p.runTest(all, "status", strings.TrimPrefix(n.ops, "http://"))

	token := contents(t, all, "Secret", "demo-headgate-caller", nil)["token"]
	if status, _ := n.get(n.http + "/v1/authorize"); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
	if got := n.authorize(token, 6); !slices.Equal(got, fiveThenDenied) {
		t.Errorf("%v, want %v", got, fiveThenDenied)
	}
	operator := contents(t, all, "Secret", "demo-headgate-admin", nil)["token"]
	top := p.headgate("top", "--once", "--server", n.admin)
	top.Env = append(top.Env, "HEADGATE_TOKEN="+operator)
	if out, err := top.CombinedOutput(); err != nil || !strings.Contains(string(out), "by-ip") {
		t.Errorf("headgate top: %v\n%s", err, out)
	}

	// Another file, and the first one is gone.
	p.volumes["rules"].write(t, map[string]string{"other.yaml": "rules: [{id: other, by: [ip], limit: 2/hour}]\n"})
	eventually(t, "other rules", func() bool { return n.ready() != version })
	if got := n.authorize(token, 3); !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("after a change of the rules: %v", got)
	}
	p.volumes["caller"].write(t, map[string]string{"tokens": tokenLine("other", "gateway caller")})
	eventually(t, "another token", func() bool { return slices.Equal(n.authorize("other", 1), []int{429}) })
	if got := n.authorize(token, 1); got[0] != http.StatusUnauthorized {
		t.Errorf("the former token: %v", got)
	}
	// Rules that are invalid change nothing, and a server that starts with them uses the last good ones.
	version = n.ready()
	p.volumes["rules"].write(t, map[string]string{"other.yaml": "rules: [{id: other}]\n"})
	eventually(t, "invalid rules", func() bool {
		_, body := n.get(n.ops + "/readyz")
		return strings.Contains(body, "other.yaml")
	})
	n.program.Kill()
	n.run()
	if n.ready() != version {
		t.Error("the last good rules are not used")
	}
}

// runTest runs a container of "helm test", with the address of a node instead of that of a Service.
func (p *pod) runTest(all objects, container, address string) {
	p.t.Helper()
	for _, c := range at[[]any](all.find("Pod", "-test"), "spec", "containers") {
		if at[string](c, "name") != container {
			continue
		}
		var args []string
		for _, arg := range at[[]any](c, "args") {
			arg := strings.ReplaceAll(arg.(string), "--config=", "--config="+p.root)
			args = append(args, strings.ReplaceAll(arg, "demo-headgate-headless:8082", address))
		}
		out, err := p.headgate(args...).CombinedOutput()
		if err != nil {
			p.t.Errorf("%v: %v\n%s", args, err, out)
		}
		return
	}
	p.t.Errorf("no container %s", container)
}

// TestSidecar runs the server of the example with a sidecar: on loopback, without a token.
func TestSidecar(t *testing.T) {
	t.Parallel()
	extent(t)
	redis := testenv.Start(t, testenv.Redis)
	file := filepath.Join(testenv.Repository(t), "examples", "kubernetes", "sidecar.yaml")
	text, err := os.ReadFile(file)
	testenv.NoError(t, err)
	validate(t, file)
	address := strings.ReplaceAll(string(text), "redis://redis:6379\"", "redis://"+redis.Addr()+"\", deadline: 1s")
	p := newPod(t, parse(t, []byte(address)), nil)
	p.validate()
	n := p.start(t)
	n.ready()
	if got := n.authorize("", 6); !slices.Equal(got, fiveThenDenied) {
		t.Errorf("%v, want %v", got, fiveThenDenied)
	}
}

// TestGeneratedTokenIsKept upgrades a release in a cluster that has its Secrets. The lines that operators added are kept, and the generated line follows the
// token.
func TestGeneratedTokenIsKept(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		added := "# since May\n" + tokenLine("hgt_gateway", "gateway caller") + tokenLine("hgt_other", "generated-2 caller")
		cluster := fakeCluster(t, map[string]map[string]string{
			"demo-headgate-caller": {"token": "hgt_kept", "tokens": tokenLine("hgt_earlier", "generated caller") + strings.TrimSpace(added)},
			"demo-headgate-admin":  {"token": "hgt_admin", "tokens": tokenLine("hgt_admin", "ann editor")},
		})
		text, err := c.template(t, minimal, "--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", cluster)
		testenv.NoError(t, err)
		all := parse(t, text)
		for name, want := range map[string]map[string]string{
			"demo-headgate-caller": {"token": "hgt_kept", "tokens": tokenLine("hgt_kept", "generated caller") + added},
			"demo-headgate-admin":  {"token": "hgt_admin", "tokens": tokenLine("hgt_admin", "ann editor")},
		} {
			if got := contents(t, all, "Secret", name, nil); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	})
}
