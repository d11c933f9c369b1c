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

// firstPause is how long a failed attempt to connect is left alone before the next; it doubles up to keepEvery.
const firstPause = 50 * time.Millisecond

// link is the connection to Redis, which may not be there yet.
type link struct {
	address string // without user and password
	client  atomic.Pointer[rueidis.Client]
	err     atomic.Pointer[error]
	tried   chan struct{} // closed when the first attempt has ended
	ended   func()        // closes it
}

func newLink(address string) *link {
	tried := make(chan struct{})
	return &link{address: redact.Address(address), tried: tried, ended: sync.OnceFunc(func() { close(tried) })}
}

func (l *link) fail(err error) {
	err = fmt.Errorf("connect to %s: %w: is Redis running there, and do user, password and TLS fit?", l.address, err)
	l.err.Store(&err)
	l.ended()
}

// get waits for the first attempt to connect, as long as ctx lets it, and never for another: a Redis that is away must
// not hold up anybody.
func (l *link) get(ctx context.Context) (rueidis.Client, error) {
	if client := l.client.Load(); client != nil {
		return *client, nil
	}
	select {
	case <-l.tried:
	case <-ctx.Done():
		return nil, fmt.Errorf("not connected to %s yet: %w", l.address, ctx.Err())
	}
	if client := l.client.Load(); client != nil {
		return *client, nil
	}
	return nil, *l.err.Load()
}

// client returns the connection to Redis; its error is headgate.ErrUnavailable.
func (s *Store) client(ctx context.Context) (rueidis.Client, error) {
	client, err := s.link.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
	}
	return client, nil
}

// connect tries until it succeeds or ctx ends.
func (s *Store) connect(ctx context.Context) bool {
	for pause := firstPause; ; pause = min(2*pause, keepEvery) {
		client, err := s.attempt(ctx)
		if err == nil {
			s.greet(ctx, client)
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

// attempt dials once. The client's library cannot be told to stop: a dial that is under way when ctx ends is left to end
// by itself, within dialTimeout for each address.
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

// greet makes the keeper's first turn: the first charges find the scripts, and know how many nodes there are, which know of this one.
func (s *Store) greet(ctx context.Context, client rueidis.Client) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	s.keepServers(ctx, client)
	_ = s.announceOn(ctx, client, announceTTL)
	s.link.client.Store(&client)
	_, _ = s.agreeOnKey(ctx)
	s.link.ended()
}

// Ready says whether Redis answers, and if not why. It waits for the first attempt to connect, as long as ctx lets it.
// Nobody has to ask: a store connects by itself, and charges that come before get headgate.ErrUnavailable.
func (s *Store) Ready(ctx context.Context) error {
	select {
	case <-s.link.tried:
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
