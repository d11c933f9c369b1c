package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
)

// answer is what a node says of a request.
type answer struct {
	Status     int       `json:"-"`
	Allowed    bool      `json:"allowed"`
	Path       string    `json:"path"`
	Reset      time.Time `json:"reset"`
	RetryAfter *float64  `json:"retry_after"`
	Limits     []struct {
		Count     int64 `json:"count"`
		Remaining int64 `json:"remaining"`
	} `json:"limits"`
}

// node is one server of ours, or in a cold start one client in this process.
type node struct {
	ask func(ctx context.Context, user int) (answer, error)
	// log is what it has printed so far.
	log string

	// Of a server:
	args   []string
	http   string
	ops    string
	client *http.Client
	cmd    *exec.Cmd
	gone   chan struct{}
}

// rules of every node. The clock tells the windows of the hot subject, of which nodes may lease units. Users are under a strict
// rule, so that what the store has counted of them is what was admitted; leased is for the units that nodes hold meanwhile.
var rules = fmt.Sprintf(`rules:
  - id: hot
    match: {path: /hot}
    by: [user]
    algorithm: fixed_window
    limit: {rate: %d/%s, align: clock}
  - id: spread
    match: {path: /spread}
    by: [user]
    algorithm: fixed_window
    limit: 1000000/hour
    strict: true
  - id: leased
    match: {path: /leased}
    by: [user]
    algorithm: fixed_window
    limit: 1000000/hour
  - id: bucket
    match: {path: /bucket}
    by: [user]
    algorithm: token_bucket
    limit: %d/%s
`, limit, window, bucketSize, bucketRefill)

// newNode prepares a server that listens on free ports of a host. prefix is put before its command.
func newNode(scope *paired.Scope, program, host, redis string, prefix ...string) (*node, error) {
	dir := scope.TempDir()
	n := &node{log: filepath.Join(dir, "log"), client: &http.Client{
		Timeout: 2 * time.Second,
		// Connections that one bad moment has made are not kept: they would be taken for growth of the server.
		Transport: &http.Transport{MaxConnsPerHost: room, MaxIdleConnsPerHost: room, IdleConnTimeout: 5 * time.Second},
	}}
	n.ask = func(ctx context.Context, user int) (answer, error) { return n.post(ctx, "/v1/check", user) }
	for _, address := range []*string{&n.http, &n.ops} {
		port, err := freePort(scope.Context())
		if err != nil {
			return nil, err
		}
		*address = net.JoinHostPort(host, strconv.Itoa(port))
	}
	config := fmt.Sprintf(`listen: {http: %q, grpc: off, ops: %q, admin: off, open: true}
redis: {address: %q}
rules: rules.yaml
nodes: %d
`, n.http, n.ops, redis, nodeCount)
	for name, text := range map[string]string{"rules.yaml": rules, "config.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	n.args = slices.Concat(prefix, []string{program, "serve", "--config", filepath.Join(dir, "config.yaml")})
	scope.Cleanup(n.kill)
	return n, nil
}

// freePort is one that no client is given for a connection of its own while the server is down.
func freePort(ctx context.Context) (int, error) {
	for range 100 {
		port := 12_000 + rand.IntN(20_000)
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, errors.New("no free port found")
}

// start returns when the server listens. Its log goes on where it ended.
func (n *node) start(ctx context.Context) error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own
	n.cmd = exec.CommandContext(ctx, n.args[0], n.args[1:]...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.gone = make(chan struct{})
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait() // it is killed
		close(gone)
	}(n.cmd, n.gone)
	dialer := net.Dialer{Timeout: time.Second}
	for range 2000 {
		if conn, err := dialer.DialContext(ctx, "tcp", n.ops); err == nil {
			return conn.Close()
		}
		select {
		case <-n.gone:
			text, _ := os.ReadFile(n.log)
			return fmt.Errorf("the server has ended: %s", text)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("the server does not listen on %s", n.ops)
}

// kill ends the server with SIGKILL.
func (n *node) kill() {
	if n.gone != nil {
		_ = n.cmd.Process.Kill()
		<-n.gone
	}
}

func (n *node) post(ctx context.Context, path string, user int) (a answer, err error) {
	body := fmt.Sprintf(`{"attributes":{"path":%q,"user":%q}}`, pathOf(user), userName(user))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.http+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := n.client.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, &a)
	}
	a.Status = response.StatusCode
	return a, err
}

// used returns what the store has counted for a subject.
func (n *node) used(ctx context.Context, user int) (int64, error) {
	for range 20 {
		a, err := n.post(ctx, "/v1/peek", user)
		if err != nil {
			return 0, err
		}
		if a.Path == "store" {
			return a.Limits[0].Count - a.Limits[0].Remaining, nil
		}
		sleepUntil(ctx, time.Now().Add(50*time.Millisecond))
	}
	return 0, fmt.Errorf("the store does not say what %s has used", userName(user))
}

// metric is the sum of all series of a name, 0 if there are none.
func (n *node) metric(ctx context.Context, name string) (sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ops+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := n.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if family, _, _ := strings.Cut(series, "{"); family != name {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += number
	}
	return sum, lines.Err()
}

// circuitOpened begins the log line of a node that stops asking a shard of the store.
const circuitOpened = "store shard unavailable; circuit open"

// opened returns how often circuits of the node have opened since a time: of all shards, and most of one.
func (n *node) opened(since time.Time) (all, most int, err error) {
	text, err := os.ReadFile(n.log)
	shards := map[int]int{}
	for line := range bytes.Lines(text) {
		var entry struct {
			Time  time.Time
			Msg   string
			Shard int
		}
		if json.Unmarshal(line, &entry) != nil || entry.Time.Before(since) || !strings.HasPrefix(entry.Msg, circuitOpened) {
			continue
		}
		all++
		shards[entry.Shard]++
		most = max(most, shards[entry.Shard])
	}
	return all, most, err
}
