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
func Library(scope testing.TB, limit Limit) Form {
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
	return Form{
		Name: "library",
		Check: func(ctx context.Context, node, subject int) (Answer, error) {
			d, err := limiters[node%nodes].Check(ctx, headgate.Request{Attributes: headgate.Attributes{"user": user(subject)}})
			return Answer{d.Allowed, d.RetryAfter, d.Path == headgate.PathStore}, err
		},
		CPU: func() time.Duration { return paired.CPU() + redis.CPU(scope) },
	}
}

// Served starts servers, processes of their own, and returns the ways to ask them: package client, which spreads checks over the
// servers, and JSON over HTTP, which asks one after the other.
func Served(scope testing.TB, program string, limit Limit) (stream, plain Form) {
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
	stream = Form{Name: "package client, gRPC stream", CPU: cpu, Check: func(ctx context.Context, _, subject int) (Answer, error) {
		d, err := remote.Check(ctx, headgate.Request{Attributes: headgate.Attributes{"user": user(subject)}})
		return Answer{d.Allowed, d.RetryAfter, d.Path == headgate.PathStore}, err
	}}
	plain = Form{Name: "JSON over HTTP", CPU: cpu, Check: func(ctx context.Context, node, subject int) (Answer, error) {
		return overHTTP(ctx, servers[node%nodes], subject)
	}}
	return stream, plain
}

// overHTTP asks a server. Callers wait as the header Retry-After says, in whole seconds.
func overHTTP(ctx context.Context, server *fleet.Node, subject int) (Answer, error) {
	attributes := map[string]string{"user": user(subject)}
	a, err := server.Check(ctx, attributes)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
		// It crossed with the server's close of a connection that was dialed and never used.
		a, err = server.Check(ctx, attributes)
	}
	wait := time.Duration(a.Headers.RetryAfter) * time.Second
	return Answer{a.Allowed, wait, !a.Allowed && a.Path == string(headgate.PathStore)}, err
}
