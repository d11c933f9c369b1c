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

// namespace is a network of its own for one node, with one link for its callers and one for Redis.
type namespace struct {
	name         string
	nodeAddress  string // where callers find the node
	redisHost    string // where the node finds Redis
	redisAddress string
	nodeOnRedis  string // the node's own address on that link
}

// newNamespace needs root. The addresses are of the range for benchmarks, which nobody else uses.
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

// prefix runs a command within.
func (n *namespace) prefix() []string { return []string{"ip", "netns", "exec", n.name} }

// cutOff makes both sides send what is for the other to an address on the link that nobody has: it is lost without a
// word.
func (n *namespace) cutOff() error {
	const nobody = "lladdr 02:00:00:00:00:01 nud permanent"
	if err := ip("-n", n.name, "neigh replace", n.redisHost, nobody, "dev", n.name+"r1"); err != nil {
		return err
	}
	return ip("neigh replace", n.nodeOnRedis, nobody, "dev", n.name+"r0")
}

// rejoin ends that.
func (n *namespace) rejoin() error {
	if err := ip("-n", n.name, "neigh del", n.redisHost, "dev", n.name+"r1"); err != nil {
		return err
	}
	return ip("neigh del", n.nodeOnRedis, "dev", n.name+"r0")
}

// ip runs the command of that name. Arguments may be several words.
func ip(args ...string) error {
	line := strings.Join(args, " ")
	if text, err := exec.CommandContext(context.Background(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, text)
	}
	return nil
}

// partitioned is one server that the last node reaches over a link of its own.
func partitioned(w *world) {
	w.space = newNamespace(w)
	standalone("--bind", "127.0.0.1", w.space.redisHost)(w)
	_, port, _ := strings.Cut(w.redis.Addr(), ":")
	w.space.redisAddress = "redis://" + w.space.redisHost + ":" + port
}

// partition takes that link away.
func partition(w *world) {
	w.mark("partition")
	testenv.NoError(w, w.space.cutOff())
	w.hold()
	w.mark("healed")
	testenv.NoError(w, w.space.rejoin())
}
