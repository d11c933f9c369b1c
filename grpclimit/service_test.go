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
	list    = "/test.Test/List"    // a stream of answers: the message three times
	collect = "/test.Test/Collect" // a stream of messages: all of them in one answer
	talk    = "/test.Test/Talk"    // both: each message back
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
		// This handler takes any error for the end of the stream, as a careless one may, and looks twice.
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

// serve starts a server and connects to it. Neither leaves the process, so time in a synctest bubble can pass.
func serve(tb testing.TB, interceptors *grpclimit.Interceptors, options ...grpc.DialOption) *client {
	tb.Helper()
	pipe := bufconn.Listen(1 << 16)
	options = append(options,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	return serveOn(tb, pipe, "passthrough:test", interceptors, options...)
}

// serveTCP is serve where clients have an address: 127.0.0.1.
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

//nolint:revive // tb comes first, as everywhere.
func (c *client) stream(tb testing.TB, ctx context.Context, method string) grpc.ClientStream {
	tb.Helper()
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		tb.Fatal(err)
	}
	return stream
}

// say sends a message and reads one.
func say(stream grpc.ClientStream, message string) error {
	if err := stream.SendMsg(&text{Value: message}); err != nil && !errors.Is(err, io.EOF) {
		return err // EOF means that the stream is over, and RecvMsg says why
	}
	return stream.RecvMsg(&text{})
}

// ask is say for a client that has but one message, and says that it has.
func ask(stream grpc.ClientStream, message string) error {
	if err := stream.SendMsg(&text{Value: message}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(&text{})
}

// limits makes interceptors with rules counted in this process. Clients over a pipe are trusted to say who they are.
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

// as is a context with metadata.
func as(ctx context.Context, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// denial is what a client can read out of an error.
type denial struct {
	retry      time.Duration // 0 if there is none
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
			tb.Errorf("a detail that cannot be read: %v", detail)
		}
	}
	return r
}

// failing is a store that is away.
type failing struct{}

var errAway = errors.New("away")

func (failing) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: errAway}
	}
	return errAway
}

func (failing) Shard(headgate.Subject) int { return 0 }
