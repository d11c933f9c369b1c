package doctor

import (
	"context"
	"crypto/rand"
	_ "embed"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/redisclient"
)

// probe calls each command of the scripts of package redisstore.
//
//go:embed probe.lua
var probe string

// maxKeyAttempts bounds the search for a key that a server of a Cluster owns.
const maxKeyAttempts = 10_000

// permissions calls each command that a node uses, on a key that does not exist, and leaves nothing behind.
func (c *redisCheck) permissions(ctx context.Context, address string, client rueidis.Client, shards []shard) {
	key, ok := c.ownKey(address, shards)
	if !ok {
		return // the slots are reported by cluster
	}
	var denied []string
	var failed string
	// note records the outcome of a command. It returns true if the command was executed.
	note := func(name string, err error) bool {
		switch {
		case err == nil || rueidis.IsRedisNil(err):
			return true
		case isPermission(err):
			denied = append(denied, name)
		default:
			failed = name + ": " + redact.Text(err.Error())
		}
		return false
	}
	do := func(name string, words ...string) bool {
		return note(name, client.Do(ctx, client.B().Arbitrary(words...).Build()).Error())
	}
	channel := c.prefix + "db" + strconv.Itoa(c.option.SelectDB) + ":doctor"
	if do("eval", "EVAL", "return 1", "0") {
		lines, err := client.Do(ctx, client.B().Arbitrary("EVAL", probe, "1", key, channel).Build()).AsStrSlice()
		note("eval", err)
		for _, line := range lines {
			name, text, _ := strings.Cut(line, " ")
			if deniedInScript(text) {
				denied = append(denied, strings.ToLower(name))
			} else {
				failed = name + ": " + text
			}
		}
	}
	if sha, err := client.Do(ctx, client.B().ScriptLoad().Script("return 1").Build()).ToString(); note("script|load", err) {
		do("script|exists", "SCRIPT", "EXISTS", sha)
		do("evalsha", "EVALSHA", sha, "0")
	}
	do("exists", "EXISTS", key)
	do("expire", "EXPIRE", key, "1")
	do("set", "SET", key, "x", "XX", "GET")
	do("publish", "PUBLISH", channel, "")
	do("role", "ROLE")
	note("subscribe", subscribe(ctx, client, channel))
	if redisclient.IsCluster(&c.option) {
		do("cluster|slots", "CLUSTER", "SLOTS")
		do("cluster|shards", "CLUSTER", "SHARDS")
	}
	c.reportPermissions(address, denied, failed)
}

// deniedInScript reports whether an error within a script is about permissions. Each version of Redis words it differently.
func deniedInScript(text string) bool {
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "ACL failure") || strings.Contains(text, "executing the script can't")
}

func (c *redisCheck) reportPermissions(address string, denied []string, failed string) {
	slices.Sort(denied)
	denied = slices.Compact(denied)
	messages := slices.DeleteFunc(slices.Clone(denied), func(name string) bool { return name != "publish" && name != "subscribe" })
	switch {
	case strings.Contains(failed, "OOM"):
		c.add(address, "permissions", Problem, "Redis rejects writes because its memory is full: nodes decide by each rule's on_store_failure",
			"raise maxmemory, or move other data elsewhere")
	case strings.Contains(failed, "READONLY"):
		c.add(address, "permissions", Problem, "the server is a replica and rejects writes: nothing can be charged", "correct redis.address: name the primary, or use sentinel://")
	case strings.Contains(failed, "MISCONF"):
		c.add(address, "permissions", Problem, "Redis rejects writes because its last snapshot failed", "see the log of Redis; free the disk")
	case strings.Contains(failed, "NOREPLICAS"):
		c.add(address, "permissions", Problem, "Redis rejects writes because it has fewer replicas in sync than min-replicas-to-write: nodes decide by each rule's on_store_failure",
			"start the missing replicas, or lower the setting: "+c.configSet(address, "min-replicas-to-write", "0"))
	case isNoCluster(failed): // reported by cluster
	case failed != "":
		c.add(address, "permissions", Problem, "a command that nodes need failed: "+failed, "see the log of Redis")
	}
	switch {
	case len(denied) > len(messages):
		c.add(address, "permissions", Problem, "the user lacks commands that every decision needs, so that nodes decide by each rule's on_store_failure: "+
			strings.Join(denied, ", "), c.grant(address))
	case len(messages) > 0:
		c.add(address, "permissions", Warning, "the user lacks "+strings.Join(messages, ", ")+" or the channels: headgate top and denials show one node only, "+
			"and nodes cannot recall leased units", c.grant(address))
	case failed == "":
		c.add(address, "permissions", OK, "all commands that nodes use are allowed", "")
	}
}

// ownKey returns a key that does not exist, in a slot of the server if there are shards.
func (c *redisCheck) ownKey(address string, shards []shard) (string, bool) {
	base := c.prefix + "doctor:" + rand.Text()
	at := slices.IndexFunc(shards, func(s shard) bool { return s.primary == address })
	if len(shards) == 0 {
		return base, true
	}
	for i := range maxKeyAttempts {
		key := base + strconv.Itoa(i)
		if at >= 0 && shards[at].owns(slotOf(key)) {
			return key, true
		}
	}
	return "", false
}

// subscribe subscribes on a connection of its own, and closes it.
func subscribe(ctx context.Context, client rueidis.Client, channel string) error {
	own, _ := client.Dedicate()
	defer own.Close()
	own.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	return own.Do(ctx, own.B().Subscribe().Channel(channel).Build()).Error()
}

// slotOf returns the slot of a key, by the client's own computation.
func slotOf(key string) int {
	c := rueidis.Completed{}.SetSlot(key)
	return int(c.Slot())
}
