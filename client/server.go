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
	// Between attempts to connect is a pause, longer each time.
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
	// helloWithin is how long an attempt may take, up to the first message of the server.
	helloWithin = 5 * time.Second
	// A connection on which nothing came for so long is asked for a sign of life. Servers do not suffer it more often than
	// every 10 seconds.
	keepaliveTime    = 15 * time.Second
	keepaliveTimeout = 2 * time.Second
)

var errDraining = errors.New("the server is about to stop")

// server is one address.
type server struct {
	client  *Client
	address string
	settled bool // of Client.mu
	away    bool // of run
}

// run keeps a link to the server. One that is draining lives on by itself while the next is made.
func (s *server) run(ctx context.Context) {
	pause := minPause / 2
	for {
		var lived time.Duration
		l, err := s.connect(ctx)
		if err == nil {
			since := time.Now()
			select {
			case err = <-l.left: // it was about to stop when it was asked
			default:
				s.note(ctx, nil)
				err = <-l.left
			}
			lived = time.Since(since)
		} else if ctx.Err() == nil {
			s.client.miss(s)
		}
		if ctx.Err() != nil {
			return
		}
		s.note(ctx, err)
		pause = nextPause(pause, lived)
		select {
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // it spreads clients, and is no secret
		case <-ctx.Done():
			return
		}
	}
}

// nextPause is longer than the last one, unless a link lived for longer than that: a server that is there again, or was
// only slow, should not be missed for much longer than it was used.
func nextPause(last, lived time.Duration) time.Duration {
	if lived > last {
		return minPause
	}
	return min(2*last, maxPause)
}

// note tells the log what has changed.
func (s *server) note(ctx context.Context, err error) {
	was := s.away
	s.away = err != nil
	switch {
	case s.away == was:
	case !s.away:
		s.client.options.Log.InfoContext(ctx, "a server is back", "address", s.address)
	default:
		s.client.options.Log.WarnContext(ctx, "a server is away: checks go to the others, if there are any",
			"address", s.address, "error", err)
	}
}

// connect makes a link, with a connection of its own: what was wrong with the last one is of no concern to it. The link
// is up when the server has spoken, because a server that hangs can be connected to as well.
func (s *server) connect(ctx context.Context) (*link, error) {
	secure := insecure.NewCredentials()
	if s.client.options.TLS != nil {
		secure = credentials.NewTLS(s.client.options.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithDisableServiceConfig(), // no policy of retries from elsewhere
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
	late := time.AfterFunc(helloWithin, func() { l.cancel(fmt.Errorf("no answer within %v", helloWithin)) })
	err = l.open()
	late.Stop()
	if err != nil {
		l.cancel(err)
		_ = conn.Close()
		return nil, err
	}
	return l, nil
}

// tokenKey is the metadata that servers look for a caller's token in.
const tokenKey = "x-headgate-token"

// token is credentials.PerRPCCredentials.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{tokenKey: string(t)}, nil
}

// RequireTransportSecurity is false: whether the network between services is trusted is for those to say who run them.
func (t token) RequireTransportSecurity() bool { return false }
