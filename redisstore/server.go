package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Server is a primary: a server of Redis that holds counters.
type Server struct {
	Address string
	// RunID is another one after a restart. Where one is new, there was a restart, a failover or a new shard.
	RunID string
	// EvictedKeys is how many keys, and the counters in them, it has dropped since its start because its memory was full.
	EvictedKeys int64
}

// Servers are the primaries as they are now, by address. If some do not answer within a second, they are missing and the error
// says which. It costs each server of a Cluster, replicas too, one INFO.
func (s *Store) Servers(ctx context.Context) ([]Server, error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	client, err := s.link.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("redisstore: servers: %w", err)
	}
	var (
		asking  sync.WaitGroup
		mu      sync.Mutex
		servers []Server
		failed  []error
	)
	for address, one := range client.Nodes() {
		asking.Go(func() {
			text, err := one.Do(ctx, one.B().Info().Section("server", "stats", "replication").Build()).ToString()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, fmt.Errorf("redisstore: INFO of %s: %w", address, s.lacking(err, "+info")))
			} else if server, primary := readInfo(address, text); primary {
				servers = append(servers, server)
			}
		})
	}
	asking.Wait()
	if len(servers)+len(failed) == 0 {
		failed = append(failed, fmt.Errorf("redisstore: none of the servers of %s is a primary now", s.link.address))
	}
	slices.SortFunc(servers, func(a, b Server) int { return cmp.Compare(a.Address, b.Address) })
	return servers, errors.Join(failed...)
}

// readInfo reads the lines of INFO.
func readInfo(address, text string) (server Server, primary bool) {
	server.Address = address
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "run_id":
			server.RunID = value
		case "evicted_keys":
			server.EvictedKeys, _ = strconv.ParseInt(value, 10, 64)
		case "role":
			primary = value == "master"
		}
	}
	return server, primary
}
