package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// minBackoff and maxBackoff bound the exponential backoff between connection attempts.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
	// connectTimeout is the deadline of a connection attempt, including the server's first message.
	connectTimeout = 5 * time.Second
	// keepaliveTime is the idle time after which a connection is pinged. Servers reject pings more often than every 10 seconds.
	keepaliveTime    = 15 * time.Second
	keepaliveTimeout = 2 * time.Second
)

var errDraining = errors.New("server is draining")

// server is one address.
type server struct {
	client  *Client
	address string
	settled bool // the first connection attempt has finished; guarded by Client.mu
	// unavailable is used by run only.
	unavailable bool
}

// run keeps a link to the server open until ctx is done. A draining link stays open while run connects the next one.
func (s *server) run(ctx context.Context) {
	backoff := minBackoff / 2
	for {
		var lived time.Duration
		l, err := s.connect(ctx)
		if err == nil {
			since := time.Now()
			select {
			case err = <-l.ended: // the server was already draining
			default:
				s.logChange(ctx, nil)
				err = <-l.ended
			}
			lived = time.Since(since)
		} else if ctx.Err() == nil {
			s.client.connectFailed(s)
		}
		if ctx.Err() != nil {
			return
		}
		s.logChange(ctx, err)
		backoff = nextBackoff(backoff, lived)
		select {
		case <-time.After(backoff/2 + rand.N(backoff)): //nolint:gosec // Jitter need not be unpredictable.
		case <-ctx.Done():
			return
		}
	}
}

// nextBackoff returns twice the last backoff, or minBackoff if the link lived longer than the last backoff: the pause after a
// recovered or slow server should not be much longer than the time that it was used.
func nextBackoff(last, lived time.Duration) time.Duration {
	if lived > last {
		return minBackoff
	}
	return min(2*last, maxBackoff)
}

// logChange logs when the server becomes unavailable (err is not nil) and when it recovers.
func (s *server) logChange(ctx context.Context, err error) {
	was := s.unavailable
	s.unavailable = err != nil
	switch {
	case s.unavailable == was:
	case !s.unavailable:
		s.client.options.Log.InfoContext(ctx, "server recovered", "address", s.address)
	default:
		s.client.options.Log.WarnContext(ctx, "server unavailable; sending checks to the other servers, or applying OnFailure",
			"address", s.address, "error", err)
	}
}

// connect opens a link on a new connection, so that failures of the last connection do not affect it. The link counts as connected
// only after the server's first message, because a hung server still accepts connections.
func (s *server) connect(ctx context.Context) (*link, error) {
	secure := insecure.NewCredentials()
	if s.client.options.TLS != nil {
		secure = credentials.NewTLS(s.client.options.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithDisableServiceConfig(), // ignore retry policies from DNS
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	}
	if s.client.options.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(s.client.options.Token)))
	}
	conn, err := grpc.NewClient(s.address, options...)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", s.address, err)
	}
	l := newLink(ctx, s, conn)
	late := time.AfterFunc(connectTimeout, func() { l.cancel(fmt.Errorf("no response within %v", connectTimeout)) })
	err = l.open()
	late.Stop()
	if err != nil {
		l.cancel(err)
		_ = conn.Close()
		return nil, err
	}
	return l, nil
}

// tokenKey is the metadata key of the caller's token.
const tokenKey = "x-headgate-token"

// token sends itself with each call. It implements credentials.PerRPCCredentials.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{tokenKey: string(t)}, nil
}

// RequireTransportSecurity returns false: the operator decides whether the network between services is trusted.
func (t token) RequireTransportSecurity() bool { return false }
