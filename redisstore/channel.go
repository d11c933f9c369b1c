package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// tries is how often something is sent that Redis did not answer: connections that were left idle may be dead, and in a Cluster
// the next try goes to another server.
const tries = 3

// Publish tells those who Subscribe to a channel of this namespace now. Nobody may hear it, and somebody may hear it twice. It
// takes a second at most.
func (s *Store) Publish(ctx context.Context, channel string, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	client, err := s.link.get(ctx)
	if err != nil {
		return fmt.Errorf("redisstore: publish: %w", err)
	}
	for try := 1; ; try++ {
		// It does not block, but commands that do get a connection of their own: a message of a megabyte must not go before
		// charges on theirs.
		err = client.Do(ctx, client.B().Arbitrary("PUBLISH", s.channels+channel, string(message)).Blocking()).Error()
		if err == nil {
			return nil
		}
		if _, answered := rueidis.IsRedisErr(err); answered || try == tries || ctx.Err() != nil {
			return fmt.Errorf("redisstore: publish: %w", s.lacking(err, "+publish &"+s.prefix+"*"))
		}
	}
}

// Subscribe hears what is published on channels of this namespace until ctx ends, the store is closed or the connection breaks,
// and returns why; the caller tries again. hear is called by one goroutine, once with nil for each channel when it is
// subscribed to and then with every message, and perhaps once more just after the return. What it does not take at once
// waits in Redis, which hangs up on those who are too slow.
func (s *Store) Subscribe(ctx context.Context, channels []string, hear func(channel string, message []byte)) error {
	client, err := s.link.get(ctx)
	if err != nil {
		return fmt.Errorf("redisstore: subscribe: %w", err)
	}
	for try := 1; ; try++ {
		stood, err := s.listen(ctx, client, channels, hear)
		if _, answered := rueidis.IsRedisErr(err); stood || answered || try == tries || ctx.Err() != nil {
			return fmt.Errorf("redisstore: subscribe: %w", s.lacking(err, "+subscribe &"+s.prefix+"*"))
		}
	}
}

// listen is one try of Subscribe. The subscription stood if it was lost only later.
func (s *Store) listen(
	ctx context.Context, client rueidis.Client, channels []string, hear func(channel string, message []byte),
) (stood bool, err error) {
	// A connection of its own. On the client's, which has the charges, a slow hear would hold up their answers. In a Cluster
	// it is to any server: what is published on one is heard on all.
	own, _ := client.Dedicate()
	defer own.Close()
	broken := own.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(to rueidis.PubSubSubscription) {
			switch {
			case to.Kind != "subscribe":
			case to.Channel == s.channels+joinChannel:
				s.hearJoin("")
			default:
				hear(strings.TrimPrefix(to.Channel, s.channels), nil)
			}
		},
		OnMessage: func(m rueidis.PubSubMessage) {
			if m.Channel == s.channels+joinChannel {
				s.hearJoin(m.Message)
				return
			}
			hear(strings.TrimPrefix(m.Channel, s.channels), []byte(m.Message))
		},
	})
	// Every connection that hears anything hears of nodes that join: they need none of their own for that.
	names := []string{s.channels + joinChannel}
	for _, channel := range channels {
		names = append(names, s.channels+channel)
	}
	if err := own.Do(ctx, own.B().Subscribe().Channel(names...).Build()).Error(); err != nil {
		return false, err
	}
	select {
	case err = <-broken:
	case <-s.closing:
		err = errors.New("the store is closed")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return true, err
}

// lacking adds to a denial by Redis which rights its user needs.
func (s *Store) lacking(err error, rights string) error {
	if reply, answered := rueidis.IsRedisErr(err); answered && strings.HasPrefix(reply.Error(), "NOPERM") {
		return fmt.Errorf("%w: give the user of %s the rights %s", err, s.link.address, rights)
	}
	return err
}
