package callers

import (
	"context"
	"crypto/x509"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// healthMethods are for everybody: load balancers ask them and cannot be given a token.
var healthMethods = "/" + healthv1.Health_ServiceDesc.ServiceName + "/"

// metadataKey is Header as gRPC spells it.
var metadataKey = strings.ToLower(Header)

// GRPC returns a tap that asks next about the calls of those who are let in. It rejects a call before anything is set aside for it.
func (g *Gate) GRPC(next tap.ServerInHandle) tap.ServerInHandle {
	return func(ctx context.Context, call *tap.Info) (context.Context, error) {
		if g.open() || strings.HasPrefix(call.FullMethodName, healthMethods) {
			return next(ctx, call)
		}
		remote, certificate := peerOf(ctx)
		if why := g.judge(call.Header[metadataKey], certificate); why != "" {
			return ctx, g.rejectCall(ctx, why, remote)
		}
		return next(ctx, call)
	}
}

// rejectCall rejects a call of gRPC, and returns the status that its caller gets.
func (g *Gate) rejectCall(ctx context.Context, why string, remote net.Addr) error {
	g.reject(ctx, "grpc", why, remote.String())
	code := codes.Unauthenticated
	if why == unknownName {
		code = codes.PermissionDenied
	}
	return status.Error(code, details[why])
}

// Stream is a grpc.StreamServerInterceptor: a stream ends when the token that it began with is no longer known.
func (g *Gate) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	tokens := metadata.ValueFromIncomingContext(stream.Context(), metadataKey)
	if g.options.Token == nil || len(tokens) != 1 {
		return handle(server, stream)
	}
	return handle(server, &guarded{ServerStream: stream, gate: g, token: tokens[0], judged: time.Now()})
}

// judgeEvery is how often the token of a stream is judged again.
const judgeEvery = time.Second

// guarded is a stream whose token is judged with the messages that come.
type guarded struct {
	grpc.ServerStream
	gate   *Gate
	token  string
	judged time.Time
}

func (s *guarded) RecvMsg(message any) error {
	err := s.ServerStream.RecvMsg(message)
	if now := time.Now(); err == nil && now.Sub(s.judged) >= judgeEvery {
		s.judged = now
		if !s.gate.options.Token(s.token) {
			remote, _ := peerOf(s.Context())
			return s.gate.rejectCall(s.Context(), unknownToken, remote)
		}
	}
	return err
}

// peerOf returns where a call is from, and the certificate of the other side or nil.
func peerOf(ctx context.Context) (net.Addr, *x509.Certificate) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return &net.TCPAddr{}, nil
	}
	if secure, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		return p.Addr, certificateOf(&secure.State)
	}
	return p.Addr, nil
}
