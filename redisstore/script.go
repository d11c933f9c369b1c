package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts, not a safeguard
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
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
var takeMain string

//go:embed lua/logs.lua
var takeLogs string

//go:embed lua/announce.lua
var announceText string

// takeText is take.lua with logs.lua where its name stands.
var takeText = strings.Replace(takeMain, "  -- logs.lua\n", takeLogs, 1)

var (
	takeScript     = newScript(takeText)
	announceScript = newScript(announceText)
)

// retries is how often a call is repeated that surely was not executed, with pauses that double from retryPause: together
// 30 ms, or as far as the caller's context lets it. A detour goes to a random node and may meet the dead one again, so
// there are many of them; they are only taken when somebody else has the slot.
const (
	retries    = 4
	retryPause = 2 * time.Millisecond
	detours    = 16
)

// run calls a script. It repeats the call only where it was not sent, or where the server answered that it did not
// execute it. errTryAgain is returned as it is: keys of one slot that is being moved must be asked for one by one.
func (s *Store) run(
	ctx context.Context, client rueidis.Client, sc script, keys []string, args ...string,
) (rueidis.RedisMessage, error) {
	pause := retryPause
	detour := 0
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return rueidis.RedisMessage{}, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
		}
		msg, err := client.Do(ctx, command(client, "EVALSHA", sc.sha, keys, args, detour > 0)).ToMessage()
		if reply, ok := rueidis.IsRedisErr(err); ok && reply.IsNoScript() {
			msg, err = client.Do(ctx, command(client, "EVAL", sc.text, keys, args, detour > 0)).ToMessage()
		}
		if err == nil {
			return msg, nil
		}
		reply, answered := rueidis.IsRedisErr(err)
		switch {
		case answered && reply.IsTryAgain() && len(keys) > 1:
			return msg, errTryAgain
		case answered && notExecuted(reply) && attempt < retries:
			select {
			case <-ctx.Done():
			case <-time.After(pause):
				pause *= 2
			}
		case answered:
			return msg, fmt.Errorf("%w: Redis answered: %w", headgate.ErrUnavailable, err)
		case notSent(err) && s.cluster && detour < detours && (detour > 0 || promoted(ctx, client, keys[0], err)):
			detour++
		case notSent(err):
			return msg, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
		default:
			return msg, fmt.Errorf("%w: %w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, err)
		}
	}
}

// promoted asks the other nodes of a Cluster whether a key belongs to another than the one that could not be reached.
func promoted(ctx context.Context, client rueidis.Client, key string, err error) bool {
	var dead string
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Addr != nil {
		dead = op.Addr.String()
	}
	for addr, node := range client.Nodes() {
		if addr == dead {
			continue
		}
		err := node.Do(ctx, node.B().Exists().Key(key).Build()).Error()
		if err == nil {
			return true
		}
		if reply, answered := rueidis.IsRedisErr(err); answered {
			owner, moved := reply.IsMoved()
			return moved && owner != dead
		}
	}
	return false
}

// command is a script call. On a detour it does not tell the client its keys, so that it goes to some node of the Cluster,
// which answers with the node to go to: the client's own idea of that may be seconds behind a failover.
func command(client rueidis.Client, verb, script string, keys, args []string, detour bool) rueidis.Completed {
	head := client.B().Arbitrary(verb, script, strconv.Itoa(len(keys)))
	if detour {
		return head.Args(keys...).Args(args...).Build()
	}
	return head.Keys(keys...).Args(args...).Build()
}

var errTryAgain = errors.New("the slot is being moved")

// notExecuted is true of replies that a server gives instead of executing, and that pass: while it starts, is being
// demoted, or while the cluster moves a slot. (The client follows MOVED and ASK itself.)
func notExecuted(reply *rueidis.RedisError) bool {
	text := reply.Error()
	for _, code := range [...]string{"TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT", "MOVED", "ASK"} {
		if strings.HasPrefix(text, code) {
			return true
		}
	}
	return false
}

// notSent is true of errors from before the first byte was written.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot)
}
