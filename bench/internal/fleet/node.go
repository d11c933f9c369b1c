// Package served runs headgate serve as its users do, with a config on free ports, and asks it over HTTP. What the config says
// besides, and what answers mean, is its callers' business.
package served

import (
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

// Node is one server: a program once it is started.
type Node struct {
	*testenv.Program
	// Dir has its config, and what that names.
	Dir string
	// HTTP, GRPC and Ops are where it listens.
	HTTP, GRPC, Ops string

	scope   testing.TB
	program string
	client  *http.Client
}

// New prepares a server. config is all of its config but where it listens, and timeout is for one question.
func New(scope testing.TB, program, config string, timeout time.Duration) (*Node, error) {
	n := &Node{
		Dir: scope.TempDir(), HTTP: testenv.FreeAddress(scope), GRPC: testenv.FreeAddress(scope), Ops: testenv.FreeAddress(scope),
		scope: scope, program: program,
		client: &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
	}
	err := n.Write("config.yaml", fmt.Sprintf("listen: {http: %q, grpc: %q, ops: %q, admin: off}\n%s\n", n.HTTP, n.GRPC, n.Ops, config))
	return n, err
}

// Write puts a file beside its config.
func (n *Node) Write(file, text string) error {
	return os.WriteFile(filepath.Join(n.Dir, file), []byte(text), 0o600)
}

// Start returns when the server listens. It ends with the scope.
func (n *Node) Start() {
	command := exec.Command(n.program, "serve", "--config", filepath.Join(n.Dir, "config.yaml")) //nolint:noctx // the scope ends it
	n.Program = testenv.Run(n.scope, command, n.Ops)
}

// Ask is what it answers at one of its addresses, which is an error if it is not 200.
func (n *Node) Ask(ctx context.Context, method, address, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
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
