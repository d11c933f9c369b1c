package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redact"
)

// firstRetryPause is the pause after the first failed attempt to connect; it doubles up to heartbeatInterval.
const firstRetryPause = 50 * time.Millisecond

// link is the connection to Redis, which may not be established yet.
type link struct {
	address       string // without user and password
	client        atomic.Pointer[rueidis.Client]
	err           atomic.Pointer[error]
	attempted     chan struct{} // closed after the first attempt
	markAttempted func()        // closes attempted, once
}

func newLink(address string) *link {
	attempted := make(chan struct{})
	return &link{address: redact.Address(address), attempted: attempted, markAttempted: sync.OnceFunc(func() { close(attempted) })}
}

// fail records the error of an attempt to connect.
func (l *link) fail(err error) {
	err = fmt.Errorf("connect to %s: %w: check that Redis is running there, and check user, password and TLS", l.address, err)
	l.err.Store(&err)
	l.markAttempted()
}

// get returns the client. It waits for the first attempt to connect, until ctx ends, and never for another: an unavailable
// Redis must not delay requests.
func (l *link) get(ctx context.Context) (rueidis.Client, error) {
	if client := l.client.Load(); client != nil {
		return *client, nil
	}
	select {
	case <-l.attempted:
	case <-ctx.Done():
		return nil, fmt.Errorf("not connected to %s yet: %w", l.address, ctx.Err())
	}
	if client := l.client.Load(); client != nil {
		return *client, nil
	}
	return nil, *l.err.Load()
}

// client returns the connection to Redis; its error wraps headgate.ErrUnavailable.
func (s *Store) client(ctx context.Context) (rueidis.Client, error) {
	client, err := s.link.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
	}
	return client, nil
}

// connect retries until it is connected, and returns false if ctx ends first.
func (s *Store) connect(ctx context.Context) bool {
	for pause := firstRetryPause; ; pause = min(2*pause, heartbeatInterval) {
		client, err := s.attempt(ctx)
		if err == nil {
			s.onConnect(ctx, client)
			return true
		}
		s.link.fail(err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// attempt dials once. The client library cannot cancel a dial: one that is in progress when ctx ends continues in the
// background, for up to dialTimeout per address.
func (s *Store) attempt(ctx context.Context) (rueidis.Client, error) {
	type dialed struct {
		client rueidis.Client
		err    error
	}
	result := make(chan dialed)
	go func() {
		client, err := s.dial()
		select {
		case result <- dialed{client, err}:
		case <-ctx.Done():
			if err == nil {
				client.Close()
			}
		}
	}()
	select {
	case r := <-result:
		return r.client, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// onConnect runs the first heartbeat before charges use the connection: the first charges then find the scripts loaded and
// know the number of nodes, and the other nodes know this one.
func (s *Store) onConnect(ctx context.Context, client rueidis.Client) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	s.refreshServers(ctx, client)
	_ = s.announceOn(ctx, client, announceTTL)
	if s.watchesLoss {
		s.watchLoss(ctx, client)
	}
	s.link.client.Store(&client)
	_, _ = s.agreeOnKey(ctx)
	s.link.markAttempted()
}

// Ready returns nil if Redis answers, and otherwise an error that says why not and wraps headgate.ErrUnavailable. It waits
// for the first attempt to connect, until ctx ends. Calling it is optional: a store connects automatically, and charges fail
// with headgate.ErrUnavailable until then.
func (s *Store) Ready(ctx context.Context) error {
	select {
	case <-s.link.attempted:
	case <-ctx.Done():
	}
	err := s.announceFor(ctx, announceTTL)
	if err == nil {
		return nil
	}
	if !errors.Is(err, headgate.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
	}
	return fmt.Errorf("redisstore: %w", err)
}
