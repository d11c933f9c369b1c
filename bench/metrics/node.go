package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// node is one headgate serve.
type node struct {
	dir       string
	http, ops string
	client    *http.Client
	server    *testenv.Program
}

// startNode returns when the server listens. from is the part of its config that says where rules are; files are beside it. Redis
// has a second to answer: that a busy machine pauses for 10 ms is no trouble that alerts should tell of here.
func startNode(scope testing.TB, program, redis, from string, files map[string]string) (*node, error) {
	n := &node{
		dir: scope.TempDir(), http: testenv.FreeAddress(scope), ops: testenv.FreeAddress(scope),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
	}
	config := fmt.Sprintf("listen: {http: %q, grpc: off, ops: %q, admin: off}\nredis: {address: %q, deadline: 1s}\n%s\n",
		n.http, n.ops, "redis://"+redis, from)
	if err := n.write("config.yaml", config); err != nil {
		return nil, err
	}
	for file, text := range files {
		if err := n.write(file, text); err != nil {
			return nil, err
		}
	}
	command := exec.Command(program, "serve", "--config", filepath.Join(n.dir, "config.yaml")) //nolint:noctx // the scope ends it
	n.server = testenv.Run(scope, command, n.ops)
	return n, nil
}

func (n *node) write(file, text string) error {
	return os.WriteFile(filepath.Join(n.dir, file), []byte(text), 0o600)
}

// check asks for some requests, each a user and a path, and a tier if that is not empty.
func (n *node) check(ctx context.Context, requests ...request) error {
	texts := make([]string, len(requests))
	for i, r := range requests {
		texts[i] = fmt.Sprintf(`{"attributes":{"path":%q,"user":%q,"tier":%q}}`, r.path, r.user, r.tier)
	}
	path, body := "/v1/check", texts[0]
	if len(texts) > 1 {
		path, body = "/v1/check/batch", `{"requests":[`+strings.Join(texts, ",")+`]}`
	}
	_, err := n.ask(ctx, http.MethodPost, n.http, path, body)
	return err
}

// request is one that a node is asked about.
type request struct{ path, user, tier string }

// metrics are what Prometheus reads.
func (n *node) metrics(ctx context.Context) ([]byte, error) {
	return n.ask(ctx, http.MethodGet, n.ops, "/metrics", "")
}

// series is how many series of ours a node has.
func (n *node) series(ctx context.Context) (count int, err error) {
	text, err := n.metrics(ctx)
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("headgate_")) {
			count++
		}
	}
	return count, err
}

// ask expects 200.
func (n *node) ask(ctx context.Context, method, address, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := n.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	return text, err
}
