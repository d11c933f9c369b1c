package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// node is one headgate serve.
type node struct {
	scope     *paired.Scope
	program   string
	dir       string
	http, ops string
	client    *http.Client
	server    *testenv.Program
}

// newNode prepares a server on free ports. rules is the part of its config that says where they are.
func newNode(scope *paired.Scope, program, redis, rules string) (*node, error) {
	n := &node{
		scope: scope, program: program, dir: scope.TempDir(), http: testenv.FreeAddress(scope), ops: testenv.FreeAddress(scope),
		client: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
	}
	config := fmt.Sprintf("listen: {http: %q, grpc: off, ops: %q, admin: off}\nredis: {address: %q}\n%s\n",
		n.http, n.ops, "redis://"+redis, rules)
	return n, os.WriteFile(n.config(), []byte(config), 0o600)
}

func (n *node) config() string { return filepath.Join(n.dir, "config.yaml") }

// kept is the file with the last good state.
func (n *node) kept() string { return filepath.Join(n.dir, "kept") }

// start returns when the server listens.
func (n *node) start() {
	n.server = testenv.Run(n.scope, exec.Command(n.program, "serve", "--config", n.config()), n.ops) //nolint:noctx // the scope ends it
}

// kill ends it with SIGKILL.
func (n *node) kill() { n.server.Kill() }

// answer is what a node says of a request.
type answer struct {
	Allowed bool
	Limits  []struct {
		Rule  string
		Count int64
	}
}

// count is that of the limit that has decided; 0 if none did.
func (a *answer) count() int64 {
	if len(a.Limits) == 0 {
		return 0
	}
	return a.Limits[0].Count
}

// check asks whether a user's request may pass.
func (n *node) check(ctx context.Context, path, user string) (a answer, err error) {
	body := fmt.Sprintf(`{"attributes":{"path":%q,"user":%q}}`, path, user)
	err = n.get(ctx, http.MethodPost, n.http, "/v1/check", body, func(answer *http.Response) error {
		return json.NewDecoder(answer.Body).Decode(&a)
	})
	return a, err
}

// health is what a node says of itself.
type health struct {
	Status string
	Rules  struct{ Problem string }
}

func (n *node) ready(ctx context.Context) (h health, err error) {
	err = n.get(ctx, http.MethodGet, n.ops, "/readyz", "", func(answer *http.Response) error {
		return json.NewDecoder(answer.Body).Decode(&h)
	})
	return h, err
}

// metric is a series without labels.
func (n *node) metric(ctx context.Context, name string) (value float64, err error) {
	err = n.get(ctx, http.MethodGet, n.ops, "/metrics", "", func(answer *http.Response) error {
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
				value, err = strconv.ParseFloat(text, 64)
				return err
			}
		}
		return fmt.Errorf("there is no metric %s", name)
	})
	return value, err
}

// get expects 200.
func (n *node) get(ctx context.Context, method, address, path, body string, read func(*http.Response) error) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := n.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return read(response)
}
