package listen

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"
)

// Bounds on what clients send and leave unfinished. Requests are small and served within milliseconds, so that only broken
// and hostile clients reach these bounds.
const (
	headerTimeout = 5 * time.Second
	// callTimeout is for a request and its response, which a leaky bucket may delay by some seconds.
	callTimeout = 30 * time.Second
	// idleTimeout is longer than that of common proxies, so that the proxy closes the connection: a request that is sent
	// while the server closes the connection is lost.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 32 << 10
	// workers is the number of goroutines kept for calls. A new goroutine per call would have to grow its stack, which takes
	// 20% of the time.
	workers = 256
	// maxMessage is the maximum size of a gRPC message; the largest batch takes about half of it.
	maxMessage = 1 << 20
	// maxCalls is the maximum number of concurrent calls on one connection. Further calls wait in the client, or use another
	// connection. Each call may hold an incomplete message of the maximum size.
	maxCalls = 100
	// maxMetadata is the maximum size of gRPC metadata as HTTP/2 counts it: 32 bytes for each field plus its content. Callers
	// send a few fields, and a field takes five times that in memory until the call ends, which may be idle.
	maxMetadata = 8 << 10
	// streamWindow is how much unread data a call may have: one message of package client. It is the minimum of gRPC, which
	// would otherwise let it grow to 16 MB. connectionWindow is shared by all calls, and is read immediately.
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20
)

// NewHTTP returns a server of HTTP/1.1 and, over TLS, HTTP/2. It uses no TLS if secure is nil. Errors of single connections
// are logged at debug level only, because any client can cause them.
func NewHTTP(handler http.Handler, secure *tls.Config, log *slog.Logger) *http.Server {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       callTimeout,
		WriteTimeout:      callTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxCalls},
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	server.TLSConfig = secure
	return server
}

// Serve serves until the server is shut down, and then returns nil.
func Serve(server *http.Server, l net.Listener) error {
	serve := server.Serve
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// NewGRPC returns a gRPC server, with TLS if secure is not nil. It should serve a Listener, which limits unread responses.
// tap may be nil; gRPC supports only one. Stop waits for running calls, whose contexts are then canceled.
func NewGRPC(
	secure *tls.Config, codec encoding.CodecV2, tap tap.ServerInHandle, options ...grpc.ServerOption,
) *grpc.Server {
	calls := &calls{tap: tap, from: map[netip.Addr]int{}}
	all := []grpc.ServerOption{
		grpc.ConnectionTimeout(headerTimeout),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.NumStreamWorkers(workers),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		// A caller that has vanished has slots of concurrency limits until its streams end.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: headerTimeout}),
		grpc.WaitForHandlers(true),
		grpc.InTapHandle(calls.begin),
		grpc.ForceServerCodecV2(countingCodec{codec}),
		grpc.ChainUnaryInterceptor(countUnary),
		grpc.ChainStreamInterceptor(calls.stream),
	}
	if secure != nil {
		all = append(all, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(append(all, options...)...)
	calls.streams = sync.OnceValue(func() map[string]bool { return streamsOf(server) })
	return server
}
