// Package fleet runs headgate serve as its users do, with a config on free ports, and asks it. What the config says besides, and what
// answers mean, is its callers' business.
package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// Node is one server: a program once it is started.
type Node struct {
	*testenv.Program
	// Dir has its config, and what that names.
	Dir string
	// HTTP, GRPC and Ops are where it listens.
	HTTP, GRPC, Ops string
	// Client is for questions.
	Client http.Client

	scope   testing.TB
	command []string
}

// Options are what most nodes do without.
type Options struct {
	Host   string   // where it listens, if not on 127.0.0.1
	Prefix []string // of its command
}

// New prepares a server. config is all of its config but where it listens; files are beside it, by name.
func New(t testing.TB, program, config string, files map[string]string) *Node {
	t.Helper()
	return Options{}.New(t, program, config, files)
}

// New prepares a server with options.
func (o Options) New(t testing.TB, program, config string, files map[string]string) *Node {
	t.Helper()
	address := func() string {
		_, port, _ := strings.Cut(testenv.FreeAddress(t), ":")
		return cmp.Or(o.Host, "127.0.0.1") + ":" + port
	}
	n := &Node{
		Dir: t.TempDir(), HTTP: address(), GRPC: address(), Ops: address(), scope: t,
		Client: http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000, IdleConnTimeout: 5 * time.Second}},
	}
	n.command = slices.Concat(o.Prefix, []string{program, "serve", "--config", filepath.Join(n.Dir, "config.yaml")})
	listen := fmt.Sprintf("listen: {http: %q, grpc: %q, ops: %q, admin: off, open: %t}\n", n.HTTP, n.GRPC, n.Ops, o.Host != "")
	testenv.WriteFiles(t, n.Dir, map[string]string{"config.yaml": listen + config + "\n"})
	testenv.WriteFiles(t, n.Dir, files)
	return n
}

// Start starts a server with rules, a document, and returns when it listens.
func Start(t testing.TB, program, config, rules string) *Node {
	t.Helper()
	n := New(t, program, "rules: rules.yaml\n"+config, map[string]string{"rules.yaml": rules})
	n.Start()
	return n
}

// Write puts a file beside its config.
func (n *Node) Write(file, text string) {
	n.scope.Helper()
	testenv.WriteFiles(n.scope, n.Dir, map[string]string{file: text})
}

// Start returns when the server listens. It ends with the scope.
func (n *Node) Start() {
	n.scope.Helper()
	n.Program = testenv.Run(n.scope, exec.Command(n.command[0], n.command[1:]...), n.Ops) //nolint:noctx // the scope ends it
}

// Ask is what it answers at one of its addresses, which is an error if it is not 200.
func (n *Node) Ask(ctx context.Context, method, address, path, body string) ([]byte, error) {
	text, _, err := n.ask(ctx, method, address, path, body)
	return text, err
}

func (n *Node) ask(ctx context.Context, method, address, path, body string) (text []byte, status int, err error) {
	text, status, err = Ask(ctx, &n.Client, method, "http://"+address+path, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d %s: %s", path, status, http.StatusText(status), text)
	}
	return text, status, err
}

// Ask makes one HTTP request, and reads all of the answer. A body is JSON.
func Ask(ctx context.Context, client *http.Client, method, url, body string) (text []byte, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err = io.ReadAll(response.Body)
	return text, response.StatusCode, err
}

// Answer is what a node says of a request.
type Answer struct {
	Status     int `json:"-"` // of HTTP; 0 if there was no answer
	Allowed    bool
	Path       string // who decided
	Time       time.Time
	Reset      time.Time
	RetryAfter *float64 `json:"retry_after"`
	Remaining  *int64
	Limits     []struct{ Count, Remaining int64 }
	Headers    struct {
		RetryAfter int64 `json:"Retry-After,string"`
	}
}

// Count is that of the limit that has decided; 0 if none did.
func (a *Answer) Count() int64 {
	if len(a.Limits) == 0 {
		return 0
	}
	return a.Limits[0].Count
}

// Check asks whether a request with these attributes may pass.
func (n *Node) Check(ctx context.Context, attributes map[string]string) (Answer, error) {
	return n.Decide(ctx, "/v1/check", attributes)
}

// Decide asks about a request at a path, of Check or of what is like it.
func (n *Node) Decide(ctx context.Context, path string, attributes map[string]string) (a Answer, err error) {
	body, err := json.Marshal(map[string]any{"attributes": attributes})
	if err != nil {
		return a, err
	}
	text, status, err := n.ask(ctx, http.MethodPost, n.HTTP, path, string(body))
	if a.Status = status; err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// Metrics are what Prometheus reads.
func (n *Node) Metrics(ctx context.Context) (string, error) {
	text, err := n.Ask(ctx, http.MethodGet, n.Ops, "/metrics", "")
	return string(text), err
}

// Metric is the sum of all series of a name whose labels have some texts in them; 0 if there are none.
func (n *Node) Metric(ctx context.Context, name string, labels ...string) (sum float64, err error) {
	text, err := n.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		family, of, _ := strings.Cut(line[:max(0, at)], "{")
		if family != name || slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(of, label) }) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}
