package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/served"
)

// node is one headgate serve.
type node struct{ *served.Node }

// newNode prepares a server. rules is the part of its config that says where they are.
func newNode(scope *paired.Scope, program, redis, rules string) (*node, error) {
	n, err := served.New(scope, program, fmt.Sprintf("redis: {address: %q}\n%s", "redis://"+redis, rules), 2*time.Second)
	return &node{n}, err
}

// kept is the file with the last good state.
func (n *node) kept() string { return filepath.Join(n.Dir, "kept") }

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
	text, err := n.Ask(ctx, http.MethodPost, n.HTTP, "/v1/check", body)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// health is what a node says of itself.
type health struct {
	Status string
	Rules  struct{ Problem string }
}

func (n *node) ready(ctx context.Context) (h health, err error) {
	text, err := n.Ask(ctx, http.MethodGet, n.Ops, "/readyz", "")
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	return h, err
}

// metric is a series without labels.
func (n *node) metric(ctx context.Context, name string) (value float64, err error) {
	text, err := n.Ask(ctx, http.MethodGet, n.Ops, "/metrics", "")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(number), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}
