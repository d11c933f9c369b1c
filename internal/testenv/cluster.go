package testenv

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
)

const (
	shards       = 3
	clusterNodes = 2 * shards
)

// Cluster is a Redis Cluster. It starts with three primaries with one replica each; tests may change that.
type Cluster struct {
	servers []*Server
}

// StartCluster starts three primaries and three replicas with a node timeout of one second. It returns when all nodes know each other
// and report the cluster as ok, and every replica is in sync. extra are additional config arguments.
func StartCluster(t testing.TB, e Engine, extra ...string) *Cluster {
	t.Helper()
	Long(t)
	args := append([]string{
		"--cluster-enabled", "yes",
		"--cluster-announce-ip", "127.0.0.1",
		"--cluster-node-timeout", "1000",
	}, extra...)
	c := &Cluster{}
	for range clusterNodes {
		s := newServer(t, e, dataArgs(args))
		s.cluster = true
		c.servers = append(c.servers, s)
	}
	startAll(t, c.servers...)
	for i, s := range c.servers {
		s.Must(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < shards {
			first, last := i*slotCount/shards, (i+1)*slotCount/shards-1
			s.Must(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		}
		for _, other := range c.servers[:i] {
			s.Must(t, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), strconv.Itoa(other.busPort))
		}
	}
	for i, replica := range c.servers[shards:] {
		id := c.servers[i].Must(t, "CLUSTER", "MYID").(string)
		wait(t, "CLUSTER REPLICATE", func() error {
			_, err := replica.Do("CLUSTER", "REPLICATE", id) // succeeds once gossip has delivered the id
			return err
		})
	}
	for i, replica := range c.servers[shards:] {
		wait(t, "replica of "+c.servers[i].Addr(), func() error { return replica.follows(c.servers[i]) })
	}
	c.WaitOK(t)
	return c
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.servers) }

// Servers returns all nodes, whatever their roles.
func (c *Cluster) Servers() []*Server { return c.servers }

// Primaries returns the living servers that own slots, ordered by their lowest slot.
func (c *Cluster) Primaries(t testing.TB) []*Server {
	t.Helper()
	var list []*Server
	for _, owner := range ownersOf(c.selves()) {
		if owner != nil && !slices.Contains(list, owner) {
			list = append(list, owner)
		}
	}
	return list
}

// PrimaryOf returns the living server that owns a slot. If the owner is dead, it waits for the failover.
func (c *Cluster) PrimaryOf(t testing.TB, slot int) *Server {
	t.Helper()
	var primary *Server
	wait(t, fmt.Sprintf("primary of slot %d", slot), func() error {
		if primary = ownersOf(c.selves())[slot]; primary == nil {
			return errors.New("no living server owns it")
		}
		return nil
	})
	return primary
}

// selves returns how each living server that responds describes itself.
func (c *Cluster) selves() map[*Server]node {
	selves := map[*Server]node{}
	for _, s := range c.servers {
		if !s.alive() {
			continue
		}
		if self, err := s.myself(); err == nil {
			selves[s] = self
		}
	}
	return selves
}

// ownersOf returns the owners of the slots, as the servers describe themselves. If two servers claim a slot, the one with the later
// epoch owns it; the other does not know of its replacement yet.
func ownersOf(selves map[*Server]node) *[slotCount]*Server {
	var owners [slotCount]*Server
	for s, self := range selves {
		if !self.is("master") {
			continue
		}
		for _, r := range self.slots {
			for slot := r.first; slot <= r.last; slot++ {
				if owner := owners[slot]; owner == nil || self.epoch > selves[owner].epoch {
					owners[slot] = s
				}
			}
		}
	}
	return &owners
}

// WaitOK waits until every living node reports the cluster as ok and is linked to all other living nodes, and all nodes agree on their
// roles and on the living owner of each of the 16384 slots.
func (c *Cluster) WaitOK(t testing.TB) {
	t.Helper()
	wait(t, "cluster ok", c.ok)
}

// ok returns nil if the condition of WaitOK holds.
func (c *Cluster) ok() error {
	selves := c.selves()
	owners := ownersOf(selves)
	if slot := slices.Index(owners[:], nil); slot >= 0 {
		return fmt.Errorf("no living primary owns slot %d", slot)
	}
	for _, s := range c.servers {
		if !s.alive() {
			continue
		}
		reply, err := s.Do("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if state := fields(reply)["cluster_state"]; state != "ok" {
			seen, _ := s.Do("CLUSTER", "NODES")
			return fmt.Errorf("%s: cluster_state:%s, nodes:\n%v", s.Addr(), state, seen)
		}
		view, err := s.nodes()
		if err != nil {
			return err
		}
		if err := agree(view, selves, owners); err != nil {
			return fmt.Errorf("%s: %w", s.Addr(), err)
		}
	}
	return nil
}

// agree returns an error if a node's view of the cluster differs from how the servers describe themselves. A voter that does not know
// the role of a replica does not vote for it.
func agree(view []node, selves map[*Server]node, owners *[slotCount]*Server) error {
	for s, self := range selves {
		i := slices.IndexFunc(view, func(n node) bool { return n.addr == s.Addr() })
		if i < 0 {
			return fmt.Errorf("does not know %s", s.Addr())
		}
		n := view[i]
		if !n.linked || n.is("handshake") || n.is("fail?") || n.is("fail") || n.primary != self.primary {
			return fmt.Errorf("sees %+v, which describes itself as %+v", n, self)
		}
	}
	known := 0
	for _, n := range view {
		for _, r := range n.slots {
			for slot := r.first; slot <= r.last; slot++ {
				if owner := owners[slot].Addr(); owner != n.addr {
					return fmt.Errorf("slot %d is owned by %s, not %s", slot, owner, n.addr)
				}
				known++
			}
		}
	}
	if known != slotCount {
		return fmt.Errorf("knows the owners of %d slots", known)
	}
	return nil
}
