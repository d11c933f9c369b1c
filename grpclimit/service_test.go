package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type text = wrapperspb.StringValue

const (
	echo    = "/test.Test/Echo"    // unary
	list    = "/test.Test/List"    // server-streaming: the message three times
	collect = "/test.Test/Collect" // client-streaming: all messages in one response
	talk    = "/test.Test/Talk"    // bidirectional: echoes each message
)

var service = grpc.ServiceDesc{
	ServiceName: "test.Test",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(
		srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (any, error) {
		message := &text{}
		if err := decode(message); err != nil {
			return nil, err
		}
		handler := func(_ context.Context, req any) (any, error) { return req, nil }
		if interceptor == nil {
			return handler(ctx, message)
		}
		return interceptor(ctx, message, &grpc.UnaryServerInfo{Server: srv, FullMethod: echo}, handler)
	}}},
	Streams: []grpc.StreamDesc{
		{StreamName: "List", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			message := &text{}
			if err := stream.RecvMsg(message); err != nil {
				return err
			}
			for range 3 {
				if err := stream.SendMsg(message); err != nil {
					return err
				}
			}
			return nil
		}},
		// This handler treats any error as the end of the stream, as a careless handler may, and receives again.
		{StreamName: "Collect", ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			all := &text{}
			for {
				message := &text{}
				err := stream.RecvMsg(message)
				if err != nil {
					err = stream.RecvMsg(message)
				}
				if err != nil {
					return stream.SendMsg(all)
				}
				all.Value += message.GetValue()
			}
		}},
		{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			for {
				message := &text{}
				err := stream.RecvMsg(message)
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err == nil {
					err = stream.SendMsg(message)
				}
				if err != nil {
					return err
				}
			}
		}},
	},
}

// serve starts a server and connects to it through an in-process pipe, so it works in a synctest bubble.
func serve(tb testing.TB, interceptors *grpclimit.Interceptors, options ...grpc.DialOption) *client {
	tb.Helper()
	pipe := bufconn.Listen(1 << 16)
	options = append(options,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	return serveOn(tb, pipe, "passthrough:test", interceptors, options...)
}

// serveTCP does the same as serve over TCP, so the client has the address 127.0.0.1.
func serveTCP(tb testing.TB, interceptors *grpclimit.Interceptors) *client {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return serveOn(tb, listener, listener.Addr().String(), interceptors)
}

func serveOn(
	tb testing.TB, listener net.Listener, target string, interceptors *grpclimit.Interceptors, options ...grpc.DialOption,
) *client {
	tb.Helper()
	var server *grpc.Server
	if interceptors == nil {
		server = grpc.NewServer()
	} else {
		server = grpc.NewServer(grpc.UnaryInterceptor(interceptors.Unary), grpc.StreamInterceptor(interceptors.Stream))
	}
	server.RegisterService(&service, nil)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-stopped; err != nil {
			tb.Errorf("the server stopped: %v", err)
		}
	})
	return &client{conn}
}

type client struct{ conn *grpc.ClientConn }

func (c *client) echo(ctx context.Context, message string, options ...grpc.CallOption) error {
	return c.conn.Invoke(ctx, echo, &text{Value: message}, &text{}, options...)
}

//nolint:revive // tb comes first by convention.
func (c *client) stream(tb testing.TB, ctx context.Context, method string) grpc.ClientStream {
	tb.Helper()
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		tb.Fatal(err)
	}
	return stream
}

// exchange sends a message and receives one.
func exchange(stream grpc.ClientStream, message string) error {
	if err := stream.SendMsg(&text{Value: message}); err != nil && !errors.Is(err, io.EOF) {
		return err // EOF means that the stream has ended; RecvMsg returns the reason
	}
	return stream.RecvMsg(&text{})
}

// exchangeLast sends the last message, closes the sending side and receives a message.
func exchangeLast(stream grpc.ClientStream, message string) error {
	if err := stream.SendMsg(&text{Value: message}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(&text{})
}

// limits returns interceptors whose rules count in this process. Identity headers of clients over a pipe are trusted.
func limits(tb testing.TB, o grpclimit.Options, rules ...headgate.Rule) *grpclimit.Interceptors {
	tb.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rules...)
	if err != nil {
		tb.Fatal(err)
	}
	return interceptors(tb, limiter, o)
}

func interceptors(tb testing.TB, checker grpclimit.Checker, o grpclimit.Options) *grpclimit.Interceptors {
	tb.Helper()
	if o.Identity == nil {
		who, err := identity.New(identity.Options{TrustUnix: true, APIKey: identity.APIKey{Header: "X-API-Key"}})
		if err != nil {
			tb.Fatal(err)
		}
		o.Identity = who
	}
	i, err := grpclimit.New(checker, o)
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

// as returns a context with metadata.
func as(ctx context.Context, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// denial is the content of a status that a client can read.
type denial struct {
	retry      time.Duration // 0 if absent
	info       *errdetails.ErrorInfo
	violations []string
}

func read(tb testing.TB, err error) denial {
	tb.Helper()
	var r denial
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			r.retry = detail.GetRetryDelay().AsDuration()
		case *errdetails.ErrorInfo:
			r.info = detail
		case *errdetails.QuotaFailure:
			for _, v := range detail.GetViolations() {
				r.violations = append(r.violations, v.GetSubject()+" "+v.GetDescription())
			}
		default:
			tb.Errorf("unreadable detail: %v", detail)
		}
	}
	return r
}

// failing is an unavailable store.
type failing struct{}

var errUnavailable = errors.New("unavailable")

func (failing) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: errUnavailable}
	}
	return errUnavailable
}

func (failing) Shard(headgate.Subject) int { return 0 }
