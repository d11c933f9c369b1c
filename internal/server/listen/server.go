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

// Bounds of what clients send and leave undone. Requests are small and answered within milliseconds, so these are for the
// broken and the hostile.
const (
	headerTimeout = 5 * time.Second
	// callTimeout is for a request and its answer, of which a leaky bucket may hold a part for some seconds.
	callTimeout = 30 * time.Second
	// idleTimeout is longer than that of the usual proxies, so that it is they who close: a request that crosses with a
	// close is lost.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 32 << 10
	// workers are kept for calls. A new goroutine would have to grow its stack for each, which takes a fifth of the time.
	workers = 256
	// maxMessage is of gRPC; a batch of the largest size takes about half of it.
	maxMessage = 1 << 20
	// maxCalls is calls at once on one connection. Callers behind it wait in their client, or open another. Each may hold a
	// message of the largest size that is not complete.
	maxCalls = 100
	// maxMetadata is of gRPC, by the counting of HTTP/2: 32 bytes for each field besides what it holds. Callers send a handful, and a
	// field takes five times that in memory for as long as its call lasts, which may send nothing else.
	maxMetadata = 8 << 10
	// streamWindow is how much of a call may wait to be read: a message of package client. It is the least that gRPC has, which
	// would let it grow to 16 MB. connectionWindow is for all calls, and is read at once.
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20
)

// NewHTTP makes a server of HTTP/1.1 and, over TLS, HTTP/2; without TLS if secure is nil. What is wrong with single
// connections is logged for debugging only: anybody can cause it.
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

// Serve serves until the server is shut down; the error is then nil.
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

// NewGRPC makes a server of gRPC, over TLS if secure is not nil. Its listener should be a Listener, which knows how much its
// clients have not read. Tap may be nil; gRPC takes one only. Stop waits for calls under way, whose contexts have then ended.
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
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: headerTimeout}),
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
