package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storewrap"
)

const (
	// nodes is the number of nodes that share a Redis.
	nodes = 2
	// deadline is the only setting that differs from the default: a machine that is busy with the callers must not make Redis look
	// unavailable, since nodes would then admit by their local fallback share.
	deadline = time.Second
)

// Transport is one way to send checks.
type Transport struct {
	Name  string
	Check Check
	// CPU returns the CPU time that the nodes and Redis have used so far.
	CPU func() time.Duration
}

func user(subject int) string { return "user-" + strconv.Itoa(subject) }

// Library starts nodes inside this process, with the default options.
func Library(scope testing.TB, limit Limit) Transport {
	redis := testenv.Start(scope, testenv.Redis)
	var limiters [nodes]*headgate.Limiter
	for i := range limiters {
		inner := fleet.Open(scope, "redis://"+redis.Addr())
		testenv.NoError(scope, inner.Ready(scope.Context()))
		store := storewrap.New(inner, storewrap.Options{Deadline: deadline, Log: slog.New(slog.DiscardHandler)})
		scope.Cleanup(store.Close)
		var err error
		limiters[i], err = headgate.New(store, headgate.Rule{ID: "api", By: []string{"user"}, Limit: headgate.Per(limit.Count, limit.Window)})
		testenv.NoError(scope, err)
	}
	return Transport{
		Name: "library",
		Check: func(ctx context.Context, node, subject int) (Decision, error) {
			d, err := limiters[node%nodes].Check(ctx, headgate.Request{Attributes: headgate.Attributes{"user": user(subject)}})
			return Decision{d.Allowed, d.RetryAfter, d.Path == headgate.PathStore}, err
		},
		CPU: func() time.Duration { return paired.CPU() + redis.CPU(scope) },
	}
}

// Served starts servers as separate processes and returns two transports: package client, which spreads checks over the servers,
// and JSON over HTTP, which uses the servers in turn.
func Served(scope testing.TB, program string, limit Limit) (stream, plain Transport) {
	redis := testenv.Start(scope, testenv.Redis)
	var servers [nodes]*fleet.Node
	var addresses []string
	for i := range servers {
		servers[i] = fleet.Start(scope, program, fmt.Sprintf("redis: {address: \"redis://%s\", deadline: %s}", redis.Addr(), deadline),
			fmt.Sprintf("rules:\n  - {id: api, by: [user], limit: %d/%s}\n", limit.Count, limit.Window))
		addresses = append(addresses, servers[i].GRPC)
	}
	cpu := func() time.Duration {
		used := redis.CPU(scope)
		for _, s := range servers {
			used += s.CPU()
		}
		return used
	}
	remote, err := client.New(client.Options{
		Addresses: addresses, Timeout: 20 * time.Second, OnFailure: headgate.FailDeny, Log: slog.New(slog.DiscardHandler),
	})
	testenv.NoError(scope, err)
	scope.Cleanup(remote.Close)
	stream = Transport{Name: "package client, gRPC stream", CPU: cpu, Check: func(ctx context.Context, _, subject int) (Decision, error) {
		d, err := remote.Check(ctx, headgate.Request{Attributes: headgate.Attributes{"user": user(subject)}})
		return Decision{d.Allowed, d.RetryAfter, d.Path == headgate.PathStore}, err
	}}
	plain = Transport{Name: "JSON over HTTP", CPU: cpu, Check: func(ctx context.Context, node, subject int) (Decision, error) {
		return overHTTP(ctx, servers[node%nodes], subject)
	}}
	return stream, plain
}

// overHTTP checks at a server. Callers wait for the Retry-After header, in whole seconds.
func overHTTP(ctx context.Context, server *fleet.Node, subject int) (Decision, error) {
	attributes := map[string]string{"user": user(subject)}
	a, err := server.Check(ctx, attributes)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
		// The request raced with the server closing an idle connection.
		a, err = server.Check(ctx, attributes)
	}
	wait := time.Duration(a.Headers.RetryAfter) * time.Second
	return Decision{a.Allowed, wait, !a.Allowed && a.Path == string(headgate.PathStore)}, err
}
