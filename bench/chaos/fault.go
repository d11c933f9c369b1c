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
	// phase is when in a window faults begin: part of its limit is used up by then, and part is left.
	phase = 800 * time.Millisecond
)

// fault is one way to break the store.
type fault struct {
	name  string
	short bool // whether it runs with -short
	build func(*world)
	// inject breaks the store, waits, and repairs it.
	inject func(*world)
	// flaps is set where the store fails and recovers repeatedly: circuits may then open more than once.
	flaps bool
	// share is the fraction of nodes that decide by their local fallback share while the others still use the store: that much
	// more than the limit is then admitted.
	share float64
	// fromStart is set where the fault exists when the nodes start; permanent, where it also never ends.
	fromStart, permanent bool
	root                 bool // whether it requires root
	// nodes, if not nil, starts nodes other than the three servers.
	nodes func(*world)
	rate  int // of the load; 0 means the usual one
	// overload is set where the store stays available but is overloaded: then only the admitted units and the latency are judged.
	overload bool
	// lowest is the fraction of the limit that whole windows must admit, if it is more than usual.
	lowest  float64
	drawing string // file name of its drawing
}

// aof keeps counters over a restart.
var aof = []string{"--appendonly", "yes", "--appendfsync", "everysec"}

func faults() []*fault {
	return []*fault{
		{name: "Redis killed, restarted with AOF", short: true, build: standalone(aof...), inject: sustained("SIGKILL", killRedis, "restart", restartRedis), drawing: "killed"},
		{name: "Redis hangs (SIGSTOP)", short: true, build: standalone(), inject: sustained("SIGSTOP", pauseRedis, "SIGCONT", resumeRedis), drawing: "hangs"},
		{name: "Redis stalls 1 s, three times", build: standalone(), inject: stall, flaps: true},
		{name: "connections reset every 300 ms", build: behindProxy, inject: reset, flaps: true},
		{name: "200 ms of latency", build: behindProxy, inject: delay},
		{name: "one node cut off from Redis", build: partitioned, inject: sustained("partition", cutOff, "healed", rejoin), share: 1. / nodeCount, root: true},
		{
			name: "Redis out of memory", short: true, build: standalone(), // it rejects writes then, and evicts nothing
			inject: sustained("out of memory", redisCommand("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1"),
				"memory restored", redisCommand("CONFIG", "SET", "maxmemory", "0")),
		},
		{name: "scripts flushed every 200 ms", short: true, build: standalone(), inject: flushScripts},
		{name: "Redis is loading", build: slowLoader, inject: loading},
		{
			// A replica without a primary, as an old primary is after a failover that its clients have not noticed.
			name: "Redis is read-only", build: standalone(),
			inject: sustained("REPLICAOF", redisCommand("REPLICAOF", "127.0.0.1", "1"), "REPLICAOF NO ONE", redisCommand("REPLICAOF", "NO", "ONE")),
		},
		{name: "Cluster: a primary killed", short: true, build: cluster(), inject: killPrimary, drawing: "primary-killed"},
		{name: "Cluster: all primaries killed, restarted", build: cluster(aof...), inject: sustained("SIGKILL of all primaries", killPrimaries, "restart", restartPrimaries)},
		{name: "Cluster: live reshard", build: cluster(), inject: reshard},
		{name: "Sentinel: the primary killed", build: sentinels, inject: failOver},
		{name: "Redis' name does not resolve", build: unresolvable, inject: settle(faultLength), fromStart: true, permanent: true},
		{name: "20 clients start at once", build: standalone(), inject: settle(time.Second), fromStart: true, nodes: startClients(20)},
		{
			name: "Redis can serve a 20th of the load", build: behindProxy, inject: choke, overload: true, share: busyShare,
			nodes: startClients(2), rate: 20 * chokedRate, lowest: 0.9, drawing: "overload",
		},
	}
}

// sustained returns a fault that begins, lasts for faultLength and ends.
func sustained(label string, begin func(*world), endLabel string, end func(*world)) func(*world) {
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

// redisCommand returns a function that sends a command to Redis.
func redisCommand(args ...string) func(*world) { return func(w *world) { w.redis.Must(w, args...) } }

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
	defer w.mark("end of flushes")
	w.every(200*time.Millisecond, faultLength, func() { w.redis.Must(w, "SCRIPT", "FLUSH") })
}

// slowLoader starts a server with 2,000 keys of a kilobyte: after a restart it replies LOADING for six seconds.
func slowLoader(w *world) {
	standalone("--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024")(w)
	w.redis.Must(w, "EVAL", `for i = 1, 2000 do redis.call('SET', 'fill-' .. i, string.rep('x', 1000)) end`, "0")
}

func loading(w *world) {
	w.mark("SHUTDOWN SAVE, restart")
	_, _ = w.redis.Do("SHUTDOWN", "SAVE") // it closes the connection
	w.redis.Restart(w)
}

// killPrimary kills the primary of the hot subject's shard and returns when the replica was promoted.
func killPrimary(w *world) {
	hot := w.slots[hotUser]
	victim := w.cluster.Servers()[shardOf(hot)]
	w.affected = map[int]bool{}
	for user, slot := range w.slots {
		w.affected[user] = shardOf(slot) == shardOf(hot)
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

// reshard repeatedly moves the slots of the hot subject and of all users on its shard from one primary to the next.
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
	defer w.mark("slots moved")
	w.every(500*time.Millisecond, faultLength, func() {
		next := (at + 1) % shards
		w.cluster.MoveSlots(w, servers[at], servers[next], slots...)
		at = next
	})
}

// failOver returns when a sentinel reports the new primary, which is later than when that primary accepts writes.
func failOver(w *world) {
	primary := w.sentinels.Primary(w)
	w.mark("SIGKILL of the primary")
	primary.Kill()
	for w.sentinels.Primary(w) == primary && w.Context().Err() == nil {
		w.Sleep(20 * time.Millisecond)
	}
	w.announced = time.Now()
}

// unresolvable uses a host name that the resolver rejects without a lookup: one label is too long.
func unresolvable(w *world) {
	w.address = fmt.Sprintf("redis://%s.invalid:6379", strings.Repeat("x", 64))
}

// settle returns a fault that only waits: the time in which a cold start is judged.
func settle(length time.Duration) func(*world) {
	return func(w *world) {
		w.mark("start")
		w.Sleep(length)
	}
}
