package listen

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestStreamShares checks that one address has at most its share of the streams.
func TestStreamShares(t *testing.T) {
	t.Parallel()
	c := &calls{from: map[netip.Addr]int{}}
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for range maxStreams / addressShare {
		if err := c.enter(one); err != nil {
			t.Fatal(err)
		}
	}
	err := c.enter(one)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "from 192.0.2.1: use one") {
		t.Errorf("over the share of an address: %v", err)
	}
	for range maxStreams / addressShare {
		if err := c.enter(other); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.enter(netip.MustParseAddr("192.0.2.3")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("over the limit of all streams: %v", err)
	}
	for range maxStreams / addressShare {
		c.leave(one)
		c.leave(other)
	}
	if c.open != 0 || len(c.from) != 0 {
		t.Errorf("%d streams of %d addresses after all have ended", c.open, len(c.from))
	}
}

// TestSilentCalls checks that a call without a complete request is ended, and that an idle stream is not.
func TestSilentCalls(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method string
		after  time.Duration
	}{
		"call":   {"/grpc.health.v1.Health/Check", callTimeout},
		"stream": {"/grpc.health.v1.Health/Watch", time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := NewGRPC(nil, encoding.GetCodecV2("proto"), nil)
			healthv1.RegisterHealthServer(server, health.NewServer())
			listener := newPipes()
			done := make(chan error)
			go func() { done <- server.Serve(listener) }()
			conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(listener.dial))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, test.method)
			if err != nil {
				t.Fatal(err)
			}
			err = stream.RecvMsg(&healthv1.HealthCheckResponse{})
			if elapsed := time.Since(began); elapsed != test.after || status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: %v after %v", name, err, elapsed)
			}
			conn.Close()
			server.Stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// deafConn is a connection to a host that is gone: what it receives is lost.
type deafConn struct {
	net.Conn
	deaf atomic.Bool
}

func (c *deafConn) Read(b []byte) (n int, err error) {
	for {
		if n, err = c.Conn.Read(b); err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

// TestVanishedCaller checks that the stream of a caller that has vanished ends, and that of an idle one does not.
func TestVanishedCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		server := NewGRPC(nil, encoding.GetCodecV2("proto"), nil, grpc.ChainStreamInterceptor(
			func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
				defer close(ended)
				return next(server, stream)
			}))
		healthv1.RegisterHealthServer(server, health.NewServer())
		listener := newPipes()
		done := make(chan error)
		go func() { done <- server.Serve(listener) }()
		caller := &deafConn{}
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				inner, err := listener.dial(ctx, address)
				caller.Conn = inner
				return caller, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Second)
		select {
		case <-ended:
			t.Error("the stream of an idle caller has ended")
		default:
		}
		caller.deaf.Store(true)
		began := time.Now()
		<-ended
		if elapsed := time.Since(began); elapsed > 20*time.Second {
			t.Errorf("after %v", elapsed)
		}
		conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
