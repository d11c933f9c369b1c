package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/served"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

const (
	// nodes are how many share a Redis.
	nodes = 2
	// deadline is the only thing that is not as by default: a machine that is busy with the callers must not make Redis look
	// unavailable, since nodes then admit shares of their own.
	deadline = time.Second
)

// Form is one way to ask.
type Form struct {
	Name  string
	Check Check
	// CPU is what the nodes and Redis have used so far.
	CPU func() time.Duration
}

func user(subject int) string { return "user-" + strconv.Itoa(subject) }

// Library starts nodes that are part of this process, with the default options.
func Library(scope testing.TB, limit Limit) (Form, error) {
	redis := testenv.Start(scope, testenv.Redis)
	var limiters [nodes]*headgate.Limiter
	for i := range limiters {
		inner, err := redisstore.Open("redis://" + redis.Addr())
		if err != nil {
			return Form{}, err
		}
		scope.Cleanup(inner.Close)
		if err := inner.Ready(scope.Context()); err != nil {
			return Form{}, err
		}
		store := storewrap.New(inner, storewrap.Options{Deadline: deadline, Log: slog.New(slog.DiscardHandler)})
		scope.Cleanup(store.Close)
		rule := headgate.Rule{ID: "api", By: []string{"user"}, Limit: headgate.Per(limit.Count, limit.Window)}
		if limiters[i], err = headgate.New(store, rule); err != nil {
			return Form{}, err
		}
	}
	return Form{
		Name: "library",
		Check: func(ctx context.Context, node, subject int) (Answer, error) {
			d, err := limiters[node%nodes].Check(ctx, headgate.Request{Attributes: headgate.Attributes{"user": user(subject)}})
			return Answer{d.Allowed, d.RetryAfter, d.Path == headgate.PathStore}, err
		},
		CPU: func() time.Duration { return ownCPU() + redis.CPU(scope) },
	}, nil
}

// ownCPU is what this process has used so far.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Served starts servers, processes of their own, and returns the ways to ask them: package client, and JSON over HTTP.
func Served(scope testing.TB, program string, limit Limit) (stream, plain Form, err error) {
	redis := testenv.Start(scope, testenv.Redis)
	rules := fmt.Sprintf("rules:\n  - {id: api, by: [user], limit: %d/%s}\n", limit.Count, limit.Window)
	var servers [nodes]*served.Node
	for i := range servers {
		config := fmt.Sprintf("rules: rules.yaml\nredis: {address: \"redis://%s\", deadline: %s}\n", redis.Addr(), deadline)
		if servers[i], err = served.New(scope, program, config, 20*time.Second); err != nil {
			return stream, plain, err
		}
		if err := servers[i].Write("rules.yaml", rules); err != nil {
			return stream, plain, err
		}
		servers[i].Start()
	}
	cpu := func() time.Duration {
		used := redis.CPU(scope)
		for _, s := range servers {
			used += s.CPU()
		}
		return used
	}
	stream, err = overStream(scope, servers)
	stream.CPU = cpu
	return stream, Form{Name: "JSON over HTTP", Check: overHTTP(servers), CPU: cpu}, err
}

// overStream asks through package client, which spreads checks over the servers.
func overStream(scope testing.TB, servers [nodes]*served.Node) (Form, error) {
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.GRPC)
	}
	remote, err := client.New(client.Options{
		Addresses: addresses, Timeout: 20 * time.Second, OnFailure: headgate.FailDeny, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return Form{}, err
	}
	scope.Cleanup(remote.Close)
	return Form{Name: "package client, gRPC stream", Check: func(ctx context.Context, _, subject int) (Answer, error) {
		d, err := remote.Check(ctx, headgate.Request{Attributes: headgate.Attributes{"user": user(subject)}})
		return Answer{d.Allowed, d.RetryAfter, d.Path == headgate.PathStore}, err
	}}, nil
}

// overHTTP asks one server after the other. Callers wait as the header Retry-After says, in whole seconds.
func overHTTP(servers [nodes]*served.Node) Check {
	asker := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1_000}}
	return func(ctx context.Context, node, subject int) (Answer, error) {
		body := []byte(`{"attributes":{"user":"` + user(subject) + `"}}`)
		text, err := post(ctx, asker, "http://"+servers[node%nodes].HTTP+"/v1/check", body)
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
			// It crossed with the server's close of a connection that was dialed and never used.
			text, err = post(ctx, asker, "http://"+servers[node%nodes].HTTP+"/v1/check", body)
		}
		if err != nil {
			return Answer{}, err
		}
		var decision struct {
			Allowed bool              `json:"allowed"`
			Path    headgate.Path     `json:"path"`
			Headers map[string]string `json:"headers"`
		}
		if err := json.Unmarshal(text, &decision); err != nil || decision.Allowed {
			return Answer{Allowed: decision.Allowed}, err
		}
		seconds, err := strconv.Atoi(decision.Headers["Retry-After"])
		return Answer{Wait: time.Duration(seconds) * time.Second, Redis: decision.Path == headgate.PathStore}, err
	}
}

func post(ctx context.Context, asker *http.Client, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := asker.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return text, err
}
