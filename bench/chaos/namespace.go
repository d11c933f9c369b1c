package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// namespace is a network namespace for one node, with one link to its callers and one to Redis.
type namespace struct {
	name         string
	nodeAddress  string // of the node, for callers
	redisHost    string // of Redis, for the node
	redisAddress string
	nodeOnRedis  string // of the node, on the link to Redis
}

// newNamespace creates a namespace, which requires root. Its addresses are from the range reserved for benchmarks.
func newNamespace(t testing.TB) *namespace {
	pid := os.Getpid()
	net := fmt.Sprintf("198.18.%d.", pid%256)
	n := &namespace{
		name:        fmt.Sprintf("hg%d", pid),
		nodeAddress: net + "2", redisHost: net + "5", nodeOnRedis: net + "6",
	}
	t.Cleanup(func() { _ = ip("netns del", n.name) })
	commands := []string{"netns add " + n.name}
	for i, link := range []string{"c", "r"} { // of callers, of Redis
		here, there := fmt.Sprintf("%s%s0", n.name, link), fmt.Sprintf("%s%s1", n.name, link)
		commands = append(commands,
			fmt.Sprintf("link add %s type veth peer name %s netns %s", here, there, n.name),
			fmt.Sprintf("addr add %s%d/30 dev %s", net, 4*i+1, here),
			fmt.Sprintf("link set %s up", here),
			fmt.Sprintf("-n %s addr add %s%d/30 dev %s", n.name, net, 4*i+2, there),
			fmt.Sprintf("-n %s link set %s up", n.name, there),
		)
	}
	for _, command := range commands {
		testenv.NoError(t, ip(command))
	}
	return n
}

// prefix returns the prefix of a command that runs in the namespace.
func (n *namespace) prefix() []string { return []string{"ip", "netns", "exec", n.name} }

// cutOff makes both sides send packets for the other to an unused link-layer address, so that they are lost silently.
func cutOff(w *world) {
	const unusedMAC = "lladdr 02:00:00:00:00:01 nud permanent"
	w.neighbours("replace", unusedMAC)
}

// rejoin undoes cutOff.
func rejoin(w *world) { w.neighbours("del", "") }

// neighbours changes the neighbour entries of both sides.
func (w *world) neighbours(do, where string) {
	n := w.space
	testenv.NoError(w, ip("-n", n.name, "neigh", do, n.redisHost, where, "dev", n.name+"r1"))
	testenv.NoError(w, ip("neigh", do, n.nodeOnRedis, where, "dev", n.name+"r0"))
}

// ip runs the ip command. Arguments are split into words.
func ip(args ...string) error {
	line := strings.Join(args, " ")
	if text, err := exec.CommandContext(context.Background(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, text)
	}
	return nil
}

// partitioned starts one server that the last node reaches over its own link.
func partitioned(w *world) {
	w.space = newNamespace(w)
	standalone("--bind", "127.0.0.1", w.space.redisHost)(w)
	_, port, _ := strings.Cut(w.redis.Addr(), ":")
	w.space.redisAddress = "redis://" + w.space.redisHost + ":" + port
}
