package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis identifies scripts by it; it protects nothing
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

// script is a Lua script and its SHA-1, by which Redis identifies it.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

//go:embed lua/take.lua
var takeMain string

//go:embed lua/logs.lua
var takeLogs string

//go:embed lua/slots.lua
var takeSlots string

//go:embed lua/announce.lua
var announceText string

// takeText is take.lua with logs.lua and slots.lua inserted at their placeholders.
var takeText = strings.NewReplacer("  -- logs.lua\n", takeLogs, "      -- slots.lua\n", takeSlots).Replace(takeMain)

var (
	takeScript     = newScript(takeText)
	announceScript = newScript(announceText)
)

// retries is the maximum number of repetitions of a call that certainly was not executed, with pauses that double from
// retryPause: 30 ms in total, or until the caller's context ends. A detour sends the call to a random node of a Cluster, which may
// be the dead one again, so many of them are allowed. They are made only if another node has taken over the slot.
const (
	retries    = 4
	retryPause = 2 * time.Millisecond
	detours    = 16
)

// run calls a script. It repeats the call only if it was not sent, or if the server answered that it did not execute it. If a
// slot is being moved and the call has several keys, it returns errTryAgain: the caller then makes one call per key.
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
		reply, replied := rueidis.IsRedisErr(err)
		switch {
		case replied && reply.IsTryAgain() && len(keys) > 1:
			return msg, errTryAgain
		case replied && notExecuted(reply) && attempt < retries:
			select {
			case <-ctx.Done():
			case <-time.After(pause):
				pause *= 2
			}
		case replied:
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

// promoted asks the other nodes of a Cluster whether a key now belongs to another node than the one that could not be
// reached.
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
		if reply, replied := rueidis.IsRedisErr(err); replied {
			owner, moved := reply.IsMoved()
			return moved && owner != dead
		}
	}
	return false
}

// command returns a script call. On a detour it hides the keys from the client, so that the call goes to any node of the
// Cluster, which answers with the right one: the client's own slot table may be seconds behind a failover.
func command(client rueidis.Client, verb, script string, keys, args []string, detour bool) rueidis.Completed {
	head := client.B().Arbitrary(verb, script, strconv.Itoa(len(keys)))
	if detour {
		return head.Args(keys...).Args(args...).Build()
	}
	return head.Keys(keys...).Args(args...).Build()
}

var errTryAgain = errors.New("slot is being moved")

// notExecuted reports whether a server gave this reply instead of executing the call, for a temporary reason: it starts, is
// being demoted, or the cluster moves a slot. (The client follows MOVED and ASK itself.)
func notExecuted(reply *rueidis.RedisError) bool {
	text := reply.Error()
	for _, code := range [...]string{"TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT", "MOVED", "ASK"} {
		if strings.HasPrefix(text, code) {
			return true
		}
	}
	return false
}

// notSent reports whether the error occurred before the first byte was written.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot)
}
