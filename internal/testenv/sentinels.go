package testenv

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"
)

const (
	masterSet = "counters"
	quorum    = 2
)

// Sentinels is a primary with two replicas, monitored by three sentinels.
type Sentinels struct {
	servers   []*Server
	sentinels []*Server
}

// StartSentinels starts one primary, two replicas and three sentinels (quorum 2, down after 1500 ms). It returns when the replicas are
// in sync and the sentinels know them and each other.
func StartSentinels(t testing.TB, e Engine) *Sentinels {
	t.Helper()
	Long(t)
	s := &Sentinels{}
	for range 3 {
		s.servers = append(s.servers, newServer(t, e, dataArgs(nil)))
		s.sentinels = append(s.sentinels, newServer(t, e, []string{"--sentinel"}))
	}
	primary, replicas := s.servers[0], s.servers[1:]
	startAll(t, primary)
	for _, r := range replicas {
		r.configure(t, fmt.Sprintf("replicaof 127.0.0.1 %d\n", primary.port))
	}
	startAll(t, replicas...)
	// Sentinels poll replicas only every ten seconds, so the replicas must be in sync first.
	for _, r := range replicas {
		wait(t, "replica of "+primary.Addr(), func() error { return r.follows(primary) })
	}
	for _, w := range s.sentinels {
		w.configure(t, fmt.Sprintf(`
sentinel monitor %[1]s 127.0.0.1 %[2]d %[3]d
sentinel down-after-milliseconds %[1]s 1500
sentinel failover-timeout %[1]s 3000
sentinel parallel-syncs %[1]s 2
`, masterSet, primary.port, quorum))
	}
	startAll(t, s.sentinels...)
	for _, w := range s.sentinels {
		wait(t, "sentinel "+w.Addr(), func() error { return s.watches(w) })
	}
	return s
}

// follows returns an error unless s is an in-sync replica of primary.
func (s *Server) follows(primary *Server) error {
	info, err := s.info("replication")
	if err != nil {
		return err
	}
	if info["role"] != "slave" || info["master_port"] != strconv.Itoa(primary.port) || info["master_link_status"] != "up" {
		return fmt.Errorf("%s: role %s, primary %s, link %s",
			s.Addr(), info["role"], info["master_port"], info["master_link_status"])
	}
	return nil
}

// watches returns an error unless the sentinel w knows all replicas and sentinels.
func (s *Sentinels) watches(w *Server) error {
	reply, err := w.Do("SENTINEL", "MASTER", masterSet)
	if err != nil {
		return err
	}
	set := pairs(reply)
	if set["flags"] != "master" || set["num-slaves"] != "2" || set["num-other-sentinels"] != "2" {
		return fmt.Errorf("%s: flags %s, %s replicas, %s other sentinels",
			w.Addr(), set["flags"], set["num-slaves"], set["num-other-sentinels"])
	}
	if reply, err = w.Do("SENTINEL", "REPLICAS", masterSet); err != nil {
		return err
	}
	replicas, _ := reply.([]any)
	for _, r := range replicas {
		if r := pairs(r); r["flags"] != "slave" || r["master-link-status"] != "ok" {
			return fmt.Errorf("%s: replica %s: flags %s, link %s", w.Addr(), r["name"], r["flags"], r["master-link-status"])
		}
	}
	_, err = w.Do("SENTINEL", "CKQUORUM", masterSet)
	return err
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinels) Addrs() []string { return addrs(s.sentinels) }

// Master returns the name of the master set, which clients send to the sentinels.
func (s *Sentinels) Master() string { return masterSet }

// Servers returns the three data servers, whatever their roles.
func (s *Sentinels) Servers() []*Server { return s.servers }

// Primary returns the data server that the sentinels announce. After its death they still announce it until they have agreed on
// another.
func (s *Sentinels) Primary(t testing.TB) *Server {
	t.Helper()
	var primary *Server
	wait(t, "announced primary", func() (err error) {
		primary, err = s.announced(s.sentinels[0])
		return err
	})
	return primary
}

// Failover makes the sentinels promote a replica and returns when all of them announce it and it accepts writes. The old primary also
// accepts writes until the sentinels make it a replica some seconds later.
func (s *Sentinels) Failover(t testing.TB) {
	t.Helper()
	old := s.Primary(t)
	var requested time.Time
	wait(t, "sentinel failover", func() error {
		// A failover that finds no suitable replica or fails is requested again.
		if time.Since(requested) > 5*time.Second {
			if _, err := s.sentinels[0].Do("SENTINEL", "FAILOVER", masterSet); err != nil {
				return err
			}
			requested = time.Now()
		}
		return s.promoted(old)
	})
}

// promoted returns an error unless all sentinels announce the same new primary and it accepts writes.
func (s *Sentinels) promoted(old *Server) error {
	primary, err := s.announced(s.sentinels[0])
	if err != nil {
		return err
	}
	if primary == old {
		return errors.New("the old primary is still announced")
	}
	for _, w := range s.sentinels[1:] {
		other, err := s.announced(w)
		if err != nil {
			return err
		}
		if other != primary {
			return errors.New("the sentinels do not agree yet")
		}
	}
	_, err = primary.Do("DEL", "testenv:absent") // a write that changes nothing
	return err
}

func (s *Sentinels) announced(sentinel *Server) (*Server, error) {
	reply, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterSet)
	if err != nil {
		return nil, err
	}
	if parts, _ := reply.([]any); len(parts) == 2 {
		host, _ := parts[0].(string)
		port, _ := parts[1].(string)
		if i := slices.Index(addrs(s.servers), net.JoinHostPort(host, port)); i >= 0 {
			return s.servers[i], nil
		}
	}
	return nil, fmt.Errorf("%s announces %v", sentinel.Addr(), reply)
}

func addrs(servers []*Server) []string {
	var list []string
	for _, s := range servers {
		list = append(list, s.Addr())
	}
	return list
}
