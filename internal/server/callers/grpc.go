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

// healthMethods is the prefix of methods that need no token: load balancers call them and cannot send one.
var healthMethods = "/" + healthv1.Health_ServiceDesc.ServiceName + "/"

// metadataKey is Header as gRPC spells it.
var metadataKey = strings.ToLower(Header)

// GRPC returns a tap that passes authorized calls to next. It rejects other calls before resources are allocated for them.
func (g *Gate) GRPC(next tap.ServerInHandle) tap.ServerInHandle {
	return func(ctx context.Context, call *tap.Info) (context.Context, error) {
		if g.open() || strings.HasPrefix(call.FullMethodName, healthMethods) {
			return next(ctx, call)
		}
		remote, certificate := peerOf(ctx)
		if reason := g.authorize(call.Header[metadataKey], certificate); reason != "" {
			return ctx, g.rejectCall(ctx, reason, remote)
		}
		return next(ctx, call)
	}
}

// rejectCall records the rejection of a gRPC call and returns the status for its caller.
func (g *Gate) rejectCall(ctx context.Context, reason string, remote net.Addr) error {
	g.reject(ctx, "grpc", reason, remote.String())
	code := codes.Unauthenticated
	if reason == unknownName {
		code = codes.PermissionDenied
	}
	return status.Error(code, details[reason])
}

// Stream implements [grpc.StreamServerInterceptor]. It ends a stream when the token that the stream began with is no longer
// valid.
func (g *Gate) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	tokens := metadata.ValueFromIncomingContext(stream.Context(), metadataKey)
	if g.options.Token == nil || len(tokens) != 1 {
		return handle(server, stream)
	}
	return handle(server, &guarded{ServerStream: stream, gate: g, token: tokens[0], verified: time.Now()})
}

// verifyInterval is how often the token of a stream is verified.
const verifyInterval = time.Second

// guarded is a stream whose token is verified while messages arrive.
type guarded struct {
	grpc.ServerStream
	gate     *Gate
	token    string
	verified time.Time
}

func (s *guarded) RecvMsg(message any) error {
	err := s.ServerStream.RecvMsg(message)
	if now := time.Now(); err == nil && now.Sub(s.verified) >= verifyInterval {
		s.verified = now
		if !s.gate.options.Token(s.token) {
			remote, _ := peerOf(s.Context())
			return s.gate.rejectCall(s.Context(), unknownToken, remote)
		}
	}
	return err
}

// peerOf returns the address of the caller, and its certificate or nil.
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
