package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/suite"
)

// node is one headgate serve.
type node struct{ *fleet.Node }

// newNode prepares a server. rules is the part of its config that locates the rules.
func (w *world) newNode(rules string, files map[string]string) *node {
	n := fleet.New(w.scope, w.program, fmt.Sprintf("redis: {address: \"redis://%s\"}\n%s", w.redis.Addr(), rules), files)
	n.Client.Timeout = 2 * time.Second
	return &node{n}
}

// check checks a user's request.
func (n *node) check(ctx context.Context, path, user string) (fleet.Decision, error) {
	return n.Check(ctx, map[string]string{"path": path, "user": user})
}

// awaitLimit returns when the node applies a limit.
func (n *node) awaitLimit(ctx context.Context, path, user string, limit int64) error {
	return await(fmt.Sprintf("limit %d of %s at %s", limit, user, n.HTTP), func() (bool, error) {
		a, err := n.check(ctx, path, user)
		return err == nil && a.Count() == limit, err
	})
}

// awaitStatus returns when the node reports a status and a problem that contains why.
func (n *node) awaitStatus(ctx context.Context, status, why string) error {
	return await(status+" at "+n.Ops, func() (bool, error) {
		text, err := n.Fetch(ctx, http.MethodGet, n.Ops, "/readyz", "")
		var h struct {
			Status string
			Rules  struct{ Problem string }
		}
		if err == nil {
			err = json.Unmarshal(text, &h)
		}
		if err == nil && (h.Status != status || !strings.Contains(h.Rules.Problem, why)) {
			err = fmt.Errorf("%s: %s", h.Status, h.Rules.Problem)
		}
		return err == nil, err
	})
}

// await polls until so returns true.
func await(what string, so func() (bool, error)) error {
	for end := time.Now().Add(patience); ; suite.Sleep(pollPause) {
		yes, err := so()
		if yes {
			return nil
		}
		if time.Now().After(end) || errors.Is(err, context.Canceled) {
			return errors.Join(fmt.Errorf("%s: not within %v", what, patience), err)
		}
	}
}
