package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts, not a safeguard
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

//go:embed lua/take.lua
var takeText string

//go:embed lua/announce.lua
var announceText string

var (
	takeScript     = newScript(takeText)
	announceScript = newScript(announceText)
)

// retries is how often a call is repeated that the server said it had not executed, with pauses that double from
// retryPause: together 30 ms, or as far as the caller's context lets it.
const (
	retries    = 4
	retryPause = 2 * time.Millisecond
)

// run calls a script. It repeats the call only where the server answered that it did not execute it. tryAgain is
// returned as it is: keys of one slot that is being moved must be asked for one by one.
func (s *Store) run(ctx context.Context, sc script, keys []string, args ...string) (rueidis.RedisMessage, error) {
	pause := retryPause
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return rueidis.RedisMessage{}, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
		}
		sha := s.client.B().Evalsha().Sha1(sc.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
		msg, err := s.client.Do(ctx, sha).ToMessage()
		if reply, ok := rueidis.IsRedisErr(err); ok && reply.IsNoScript() {
			text := s.client.B().Eval().Script(sc.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
			msg, err = s.client.Do(ctx, text).ToMessage()
		}
		if err == nil {
			return msg, nil
		}
		reply, answered := rueidis.IsRedisErr(err)
		switch {
		case answered && reply.IsTryAgain() && len(keys) > 1:
			return msg, errTryAgain
		case answered && notExecuted(reply) && attempt < retries:
		case answered:
			return msg, fmt.Errorf("%w: Redis answered: %w", headgate.ErrUnavailable, err)
		case notSent(err):
			return msg, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
		default:
			return msg, fmt.Errorf("%w: %w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, err)
		}
		select {
		case <-ctx.Done():
			return msg, fmt.Errorf("%w: Redis answered: %w", headgate.ErrUnavailable, err)
		case <-time.After(pause):
			pause *= 2
		}
	}
}

var errTryAgain = errors.New("the slot is being moved")

// notExecuted is true of replies that a server gives instead of executing, and that pass: while it starts, is being
// demoted, or while the cluster moves a slot. (The client follows MOVED and ASK itself.)
func notExecuted(reply *rueidis.RedisError) bool {
	for _, code := range [...]string{"TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT", "MOVED", "ASK"} {
		if text := reply.Error(); strings.HasPrefix(text, code) {
			return true
		}
	}
	return false
}

// notSent is true of errors from before the first byte was written.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, rueidis.ErrClosing) || errors.Is(err, rueidis.ErrNoSlot)
}
