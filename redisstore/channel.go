package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// tries is the maximum number of attempts to send a command that Redis did not answer. An idle connection may be dead, and in
// a Cluster the next attempt goes to another server.
const tries = 3

// Publish sends a message to the current subscribers of a channel of this namespace. Delivery is not guaranteed: a subscriber
// may miss the message or receive it twice. Publish returns within a second.
func (s *Store) Publish(ctx context.Context, channel string, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	client, err := s.link.get(ctx)
	if err != nil {
		return fmt.Errorf("redisstore: publish: %w", err)
	}
	for try := 1; ; try++ {
		// PUBLISH does not block, but Blocking gives it a connection of its own: a message of a megabyte must not delay
		// charges.
		err = client.Do(ctx, client.B().Arbitrary("PUBLISH", s.channels+channel, string(message)).Blocking()).Error()
		if err == nil {
			return nil
		}
		if _, replied := rueidis.IsRedisErr(err); replied || try == tries || ctx.Err() != nil {
			return fmt.Errorf("redisstore: publish: %w", s.withMissingRights(err, "+publish &"+s.prefix+"*"))
		}
	}
}

// Subscribe passes messages published on channels of this namespace to receive. It blocks until ctx ends, the store is closed
// or the connection breaks, and returns the reason; the caller retries. receive is called from one goroutine: once with a nil
// message per channel when its subscription is active, then for each message, and possibly once more just after Subscribe has
// returned. If receive is too slow, messages queue up in Redis, which then closes the connection.
func (s *Store) Subscribe(ctx context.Context, channels []string, receive func(channel string, message []byte)) error {
	client, err := s.link.get(ctx)
	if err != nil {
		return fmt.Errorf("redisstore: subscribe: %w", err)
	}
	for try := 1; ; try++ {
		subscribed, err := s.listen(ctx, client, channels, receive)
		if _, replied := rueidis.IsRedisErr(err); subscribed || replied || try == tries || ctx.Err() != nil {
			return fmt.Errorf("redisstore: subscribe: %w", s.withMissingRights(err, "+subscribe &"+s.prefix+"*"))
		}
	}
}

// listen makes one attempt at Subscribe. subscribed is true if the subscription was active before it failed.
func (s *Store) listen(
	ctx context.Context, client rueidis.Client, channels []string, receive func(channel string, message []byte),
) (subscribed bool, err error) {
	// A dedicated connection: on the connection of the charges, a slow receive would delay their replies. In a Cluster it goes to
	// any server, because messages are forwarded to all.
	own, _ := client.Dedicate()
	defer own.Close()
	broken := own.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(to rueidis.PubSubSubscription) {
			switch {
			case to.Kind != "subscribe":
			case to.Channel == s.channels+joinChannel:
				s.handleJoin("")
			default:
				receive(strings.TrimPrefix(to.Channel, s.channels), nil)
			}
		},
		OnMessage: func(m rueidis.PubSubMessage) {
			if m.Channel == s.channels+joinChannel {
				s.handleJoin(m.Message)
				return
			}
			receive(strings.TrimPrefix(m.Channel, s.channels), []byte(m.Message))
		},
	})
	// Subscribe to joins on the same connection: they do not need one of their own.
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
		err = errors.New("store closed")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return true, err
}

// withMissingRights adds the missing rights to a permission error of Redis.
func (s *Store) withMissingRights(err error, rights string) error {
	if reply, replied := rueidis.IsRedisErr(err); replied && strings.HasPrefix(reply.Error(), "NOPERM") {
		return fmt.Errorf("%w: give the user of %s the rights %s", err, s.link.address, rights)
	}
	return err
}
