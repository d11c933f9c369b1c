package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/client"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// users returns the names of the subjects.
var users = sync.OnceValue(func() []string {
	names := make([]string, subjects)
	for i := range names {
		names[i] = "user-" + headgate.SubjectOf(strconv.Itoa(i)).String()
	}
	return names
})

// bareUnary calls a method of the bare server.
func bareUnary(conn *grpc.ClientConn, method string) func(caller, n int) error {
	return func(caller, n int) error {
		in := wrapperspb.String(users()[bare.Spread(caller, n)%subjects])
		return conn.Invoke(context.Background(), method, in, &wrapperspb.Int64Value{})
	}
}

// notByStore counts decisions that the store did not make: a busy machine may miss the deadline.
var notByStore atomic.Int64

var errDenied = errors.New("denied")

// judge counts decisions that the store did not make, and returns an error for a denial.
func judge(allowed bool, path string) error {
	if path != string(headgate.PathStore) {
		notByStore.Add(1)
	} else if !allowed {
		return errDenied
	}
	return nil
}

// request returns the attributes of a request. Its path selects one limit or three.
func request(path string, caller, n int) headgate.Attributes {
	return headgate.Attributes{"path": path, "user": users()[bare.Spread(caller, n)%subjects]}
}

// ourUnary calls Check of our service.
func ourUnary(conn *grpc.ClientConn, path string) func(caller, n int) error {
	api := checkv1.NewCheckServiceClient(conn)
	return func(caller, n int) error {
		response, err := api.Check(context.Background(), &checkv1.CheckRequest{Attributes: request(path, caller, n)})
		if err != nil {
			return err
		}
		return judge(response.GetAllowed(), response.GetPath())
	}
}

// ourStream calls CheckStream through package client.
func ourStream(c *client.Client, path string) func(caller, n int) error {
	return func(caller, n int) error {
		d, err := c.Check(context.Background(), headgate.Request{Attributes: request(path, caller, n)})
		if err != nil {
			return err
		}
		return judge(d.Allowed, string(d.Path))
	}
}
