package testenv

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Failover makes a replica take over a slot's shard in agreement with its primary, without losing writes. It returns when every living
// node knows the new primary and the old primary is an in-sync replica. Another failover of the same shard takes some seconds; see
// awaitStaleVotes.
func (c *Cluster) Failover(t testing.TB, slot int) {
	t.Helper()
	old := c.PrimaryOf(t, slot)
	replica := c.replicaOf(t, old)
	old.awaitStaleVotes(t)
	replica.awaitStaleVotes(t)
	var requested time.Time
	wait(t, "cluster failover", func() error {
		// The servers give up after five seconds and need another request then.
		if time.Since(requested) > 6*time.Second {
			if _, err := replica.Do("CLUSTER", "FAILOVER"); err != nil {
				return err
			}
			requested = time.Now()
		}
		if ownersOf(c.selves())[slot] != replica {
			return fmt.Errorf("%s does not own the slot yet", replica.Addr())
		}
		return old.follows(replica)
	})
	c.WaitOK(t)
}

// replicaOf returns an in-sync replica of primary.
func (c *Cluster) replicaOf(t testing.TB, primary *Server) *Server {
	t.Helper()
	var replica *Server
	wait(t, "replica of "+primary.Addr(), func() error {
		for _, s := range c.servers {
			if s.alive() && s.follows(primary) == nil {
				replica = s
				return nil
			}
		}
		return errors.New("none is in sync")
	})
	return replica
}

// awaitStaleVotes waits until s no longer counts the votes of an election that it has won. Servers count them for four node timeouts
// (Redis 7.0, Valkey 8.0). A server that becomes a replica during that time and whose primary then dies would take over without an
// election, under an old epoch, and no node would follow it until the dead server returns.
func (s *Server) awaitStaleVotes(t testing.TB) {
	t.Helper()
	setting := pairs(s.Must(t, "CONFIG", "GET", "cluster-node-timeout"))
	nodeTimeout, err := strconv.Atoi(setting["cluster-node-timeout"])
	if err != nil {
		t.Fatalf("%s: cluster-node-timeout: %v", s.Addr(), err)
	}
	memory := 4 * max(time.Duration(nodeTimeout)*time.Millisecond, time.Second)
	won, err := s.lastElection()
	if err != nil {
		t.Fatalf("%s: last election: %v", s.Addr(), err)
	}
	time.Sleep(time.Until(won.Add(memory + 100*time.Millisecond)))
}

// lastElection returns when the running process last won an election, or the zero time if it never did. Only its log contains that. A
// line of the log is
//
//	4711:S 15 Nov 2026 03:12:11.138 # Failover election won: I'm the new master.
func (s *Server) lastElection() (time.Time, error) {
	won := electionWon.FindAllStringSubmatch(s.program.Output(), -1)
	if len(won) == 0 {
		return time.Time{}, nil
	}
	return time.ParseInLocation("02 Jan 2006 15:04:05.000", won[len(won)-1][1], time.Local)
}

var electionWon = regexp.MustCompile(`(?m)^\S+ (\S+ \S+ \S+ \S+) .*Failover election won`)
