// Package fleet runs headgate serve as users do, with a config on free ports, and sends requests to it. Its callers supply the rest
// of the config and judge the responses.
package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// Node is one server. Program is nil until Start.
type Node struct {
	*testenv.Program
	// Dir contains the config and the files that it names.
	Dir string
	// HTTP, GRPC and Ops are the addresses it listens on.
	HTTP, GRPC, Ops string
	// Client sends the requests.
	Client http.Client

	scope   testing.TB
	place   *testenv.Place
	command []string
}

// Options are settings that few nodes need.
type Options struct {
	Host   string         // to listen on; default 127.0.0.1
	Prefix []string       // of the command line
	Place  *testenv.Place // of the server, and of the Client's connections; default this machine's own network
	Listen string         // more keys of the listen section: "regions: ADDRESS"
}

// New prepares a server. config is the config without its listen section; files are written to the same directory, by name.
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
	place := cmp.Or(o.Place, &testenv.Place{})
	n := &Node{
		Dir: t.TempDir(), HTTP: address(), GRPC: address(), Ops: address(), scope: t, place: place,
		Client: http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
			MaxIdleConnsPerHost: 1000, IdleConnTimeout: 5 * time.Second, DialContext: place.Dial,
		}},
	}
	n.command = slices.Concat(o.Prefix, []string{program, "serve", "--config", filepath.Join(n.Dir, "config.yaml")})
	listen := fmt.Sprintf("listen: {http: %q, grpc: %q, ops: %q, admin: off, open: %t, %s}\n", n.HTTP, n.GRPC, n.Ops, o.Host != "", o.Listen)
	testenv.WriteFiles(t, n.Dir, map[string]string{"config.yaml": listen + config + "\n"})
	testenv.WriteFiles(t, n.Dir, files)
	return n
}

// Start starts a server with a rule document and returns when it listens.
func Start(t testing.TB, program, config, rules string) *Node {
	t.Helper()
	n := New(t, program, "rules: rules.yaml\n"+config, map[string]string{"rules.yaml": rules})
	n.Start()
	return n
}

// Write writes a file to the config's directory.
func (n *Node) Write(file, text string) {
	n.scope.Helper()
	testenv.WriteFiles(n.scope, n.Dir, map[string]string{file: text})
}

// Start starts the server, which ends with the test, and returns when it listens.
func (n *Node) Start() {
	n.scope.Helper()
	n.Program = n.place.Run(n.scope, n.place.Command(n.command[0], n.command[1:]...), n.Ops)
}

// Fetch sends an HTTP request to one of the node's addresses and returns the response body. Any status but 200 is an error.
func (n *Node) Fetch(ctx context.Context, method, address, path, body string) ([]byte, error) {
	text, _, err := n.fetch(ctx, method, address, path, body)
	return text, err
}

func (n *Node) fetch(ctx context.Context, method, address, path, body string) (text []byte, status int, err error) {
	text, status, err = Fetch(ctx, &n.Client, method, "http://"+address+path, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d %s: %s", path, status, http.StatusText(status), text)
	}
	return text, status, err
}

// Fetch sends one HTTP request with a JSON body and reads the whole response.
func Fetch(ctx context.Context, client *http.Client, method, url, body string) (text []byte, status int, err error) {
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

// Decision is a node's response to a check.
type Decision struct {
	Status     int `json:"-"` // of HTTP; 0 if there was no response
	Allowed    bool
	Path       string // that decided, a headgate.Path
	Time       time.Time
	Reset      time.Time
	RetryAfter *float64 `json:"retry_after"`
	Remaining  *int64
	Limits     []struct{ Count, Remaining int64 }
	Headers    struct {
		RetryAfter int64 `json:"Retry-After,string"`
	}
}

// Count returns the count of the limit that decided; 0 if none did.
func (a *Decision) Count() int64 {
	if len(a.Limits) == 0 {
		return 0
	}
	return a.Limits[0].Count
}

// Check checks a request with these attributes.
func (n *Node) Check(ctx context.Context, attributes map[string]string) (Decision, error) {
	return n.Decide(ctx, "/v1/check", attributes)
}

// Decide checks a request at a path: /v1/check or an endpoint with the same request and response.
func (n *Node) Decide(ctx context.Context, path string, attributes map[string]string) (a Decision, err error) {
	body, err := json.Marshal(map[string]any{"attributes": attributes})
	if err != nil {
		return a, err
	}
	text, status, err := n.fetch(ctx, http.MethodPost, n.HTTP, path, string(body))
	if a.Status = status; err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// Metrics returns the metrics page that Prometheus scrapes.
func (n *Node) Metrics(ctx context.Context) (string, error) {
	text, err := n.Fetch(ctx, http.MethodGet, n.Ops, "/metrics", "")
	return string(text), err
}

// Metric returns the sum of all series of a name whose label text contains all of labels; 0 if there are none.
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
