package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	warmUp      = time.Second
	before      = 3 * time.Second
	faultLength = 6 * time.Second // with two whole windows in it
	after       = 4 * time.Second
	// phase is when in a window faults begin: a part of it is used up by then, and a part is left.
	phase = 800 * time.Millisecond
)

// fault is one way to break the store.
type fault struct {
	name  string
	short bool // whether it is among those of -short
	build func(*world)
	// happen breaks the store, waits, and mends it.
	happen func(*world)
	// flaps is set where the store comes and goes: circuits may then open more than once.
	flaps bool
	// share is set where some nodes still ask the store and others, this part of all, decide by their local fallback share: that
	// much more than the limit is then admitted.
	share float64
	// cold is set where the fault is there when the nodes start; stays, where it also never ends.
	cold, stays bool
	root        bool // whether only root can do it
	// nodes starts others than three servers.
	nodes func(*world)
	rate  int // of the load, if it is not the usual one
	// overload is set where the store stays available, but is asked too much: what counts is how much is admitted, and when.
	overload bool
	// least is how much of the limit whole windows must admit, if it is more than usual.
	least   float64
	drawing string // a name for its picture
}

// aof keeps counters over a restart.
var aof = []string{"--appendonly", "yes", "--appendfsync", "everysec"}

func faults() []*fault {
	return []*fault{
		{name: "Redis killed, restarted with AOF", short: true, build: standalone(aof...), happen: lasting("SIGKILL", killRedis, "restart", restartRedis), drawing: "killed"},
		{name: "Redis hangs (SIGSTOP)", short: true, build: standalone(), happen: lasting("SIGSTOP", pauseRedis, "SIGCONT", resumeRedis), drawing: "hangs"},
		{name: "Redis stalls 1 s, three times", build: standalone(), happen: stall, flaps: true},
		{name: "connections reset every 300 ms", build: behindProxy, happen: reset, flaps: true},
		{name: "200 ms of latency", build: behindProxy, happen: delay},
		{name: "one node cut off from Redis", build: partitioned, happen: lasting("partition", cutOff, "healed", rejoin), share: 1. / nodeCount, root: true},
		{
			name: "Redis out of memory", short: true, build: standalone(), // it takes no writes then, and evicts nothing
			happen: lasting("out of memory", tell("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1"),
				"memory again", tell("CONFIG", "SET", "maxmemory", "0")),
		},
		{name: "scripts flushed every 200 ms", short: true, build: standalone(), happen: flushScripts},
		{name: "Redis is loading", build: slowLoader, happen: loading},
		{
			// A replica of nobody, as an old primary is after a failover that its clients have not heard of.
			name: "Redis is read-only", build: standalone(),
			happen: lasting("REPLICAOF", tell("REPLICAOF", "127.0.0.1", "1"), "REPLICAOF NO ONE", tell("REPLICAOF", "NO", "ONE")),
		},
		{name: "Cluster: a primary killed", short: true, build: cluster(), happen: killPrimary, drawing: "primary-killed"},
		{name: "Cluster: all primaries killed, restarted", build: cluster(aof...), happen: lasting("SIGKILL of all primaries", killPrimaries, "restart", restartPrimaries)},
		{name: "Cluster: live reshard", build: cluster(), happen: reshard},
		{name: "Sentinel: the primary killed", build: sentinels, happen: failOver},
		{name: "Redis' name does not resolve", build: unresolvable, happen: settle(faultLength), cold: true, stays: true},
		{name: "20 clients start at once", build: standalone(), happen: settle(time.Second), cold: true, nodes: startClients(20)},
		{
			name: "Redis can do a 20th of what is asked", build: behindProxy, happen: choke, overload: true, share: busyShare,
			nodes: startClients(2), rate: 20 * chokedRate, least: 0.9, drawing: "overload",
		},
	}
}

// lasting breaks something, waits, and mends it.
func lasting(label string, begin func(*world), endLabel string, end func(*world)) func(*world) {
	return func(w *world) {
		w.mark(label)
		begin(w)
		w.Sleep(faultLength)
		w.mark(endLabel)
		end(w)
	}
}

func killRedis(w *world)    { w.redis.Kill() }
func restartRedis(w *world) { w.redis.Restart(w) }
func pauseRedis(w *world)   { w.redis.Pause() }
func resumeRedis(w *world)  { w.redis.Resume() }

// tell sends Redis a command.
func tell(args ...string) func(*world) { return func(w *world) { w.redis.Must(w, args...) } }

func stall(w *world) {
	for i := range 3 {
		if i > 0 {
			w.Sleep(2 * time.Second)
		}
		w.mark("SIGSTOP")
		w.redis.Pause()
		w.Sleep(time.Second)
		w.mark("SIGCONT")
		w.redis.Resume()
	}
}

func flushScripts(w *world) {
	w.mark("SCRIPT FLUSH")
	defer w.mark("no more of it")
	w.every(200*time.Millisecond, faultLength, func() { w.redis.Must(w, "SCRIPT", "FLUSH") })
}

// slowLoader is a server with 2,000 keys of a kilobyte: when it is restarted it answers LOADING for six seconds.
func slowLoader(w *world) {
	standalone("--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024")(w)
	w.redis.Must(w, "EVAL", `for i = 1, 2000 do redis.call('SET', 'fill-' .. i, string.rep('x', 1000)) end`, "0")
}

func loading(w *world) {
	w.mark("SHUTDOWN SAVE, restart")
	_, _ = w.redis.Do("SHUTDOWN", "SAVE") // which ends the connection
	w.redis.Restart(w)
}

// killPrimary is of the hot subject's shard. It is over when the replica has taken its place.
func killPrimary(w *world) {
	hot := w.slots[hotUser]
	victim := w.cluster.Servers()[shardOf(hot)]
	w.hit = map[int]bool{}
	for user, slot := range w.slots {
		w.hit[user] = shardOf(slot) == shardOf(hot)
	}
	w.mark("SIGKILL of a primary")
	victim.Kill()
	w.cluster.PrimaryOf(w, hot)
}

func killPrimaries(w *world) {
	for _, s := range w.cluster.Servers()[:shards] {
		s.Kill()
	}
}

func restartPrimaries(w *world) {
	for _, s := range w.cluster.Servers()[:shards] {
		s.Restart(w)
	}
	w.cluster.WaitOK(w)
}

// reshard moves the slots of the hot subject and of all users on its shard from one primary to the next, again and again.
func reshard(w *world) {
	at := shardOf(w.slots[hotUser])
	var slots []int
	for _, slot := range w.slots {
		if shardOf(slot) == at {
			slots = append(slots, slot)
		}
	}
	slices.Sort(slots)
	slots = slices.Compact(slots)
	servers := w.cluster.Servers()
	w.mark("slots move")
	defer w.mark("slots stay")
	w.every(500*time.Millisecond, faultLength, func() {
		next := (at + 1) % shards
		w.cluster.MoveSlots(w, servers[at], servers[next], slots...)
		at = next
	})
}

// failOver is over when a sentinel says who is the primary now, which is later than when that one takes writes.
func failOver(w *world) {
	primary := w.sentinels.Primary(w)
	w.mark("SIGKILL of the primary")
	primary.Kill()
	for w.sentinels.Primary(w) == primary && w.Context().Err() == nil {
		w.Sleep(20 * time.Millisecond)
	}
	w.announced = time.Now()
}

// unresolvable has a name that is denied before anybody is asked for it: a part of it is too long.
func unresolvable(w *world) {
	w.address = fmt.Sprintf("redis://%s.invalid:6379", strings.Repeat("x", 64))
}

// settle gives a cold start a time, which is what it is judged by.
func settle(length time.Duration) func(*world) {
	return func(w *world) {
		w.mark("start")
		w.Sleep(length)
	}
}
