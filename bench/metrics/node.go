package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/served"
)

// node is one headgate serve.
type node struct{ *served.Node }

// startNode returns when the server listens. from is the part of its config that says where rules are; files are beside it. Redis
// has a second to answer: that a busy machine pauses for 10 ms is no trouble that alerts should tell of here.
func startNode(scope testing.TB, program, redis, from string, files map[string]string) (*node, error) {
	config := fmt.Sprintf("redis: {address: %q, deadline: 1s}\n%s", "redis://"+redis, from)
	n, err := served.New(scope, program, config, 10*time.Second)
	if err != nil {
		return nil, err
	}
	for file, text := range files {
		if err := n.Write(file, text); err != nil {
			return nil, err
		}
	}
	n.Start()
	return &node{n}, nil
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
	_, err := n.Ask(ctx, http.MethodPost, n.HTTP, path, body)
	return err
}

// request is one that a node is asked about.
type request struct{ path, user, tier string }

// metrics are what Prometheus reads.
func (n *node) metrics(ctx context.Context) ([]byte, error) {
	return n.Ask(ctx, http.MethodGet, n.Ops, "/metrics", "")
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
