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

// Server is a primary: a Redis server that holds counters.
type Server struct {
	Address string
	// RunID changes with every restart. A new one means a restart, a failover or a new shard.
	RunID string
	// EvictedKeys is the number of keys, each with all counters of a subject, that the server has evicted since its start
	// because its memory was full.
	EvictedKeys int64
}

// Servers returns the current primaries, sorted by address. Servers that do not answer within a second are missing, and the
// error names them. It costs one INFO per server of a Cluster, including replicas.
func (s *Store) Servers(ctx context.Context) ([]Server, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	client, err := s.link.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("redisstore: servers: %w", err)
	}
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		servers []Server
		failed  []error
	)
	for address, one := range client.Nodes() {
		running.Go(func() {
			text, err := one.Do(ctx, one.B().Info().Section("server", "stats", "replication").Build()).ToString()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, fmt.Errorf("redisstore: INFO of %s: %w", address, s.withMissingRights(err, "+info")))
			} else if server, primary := readInfo(address, text); primary {
				servers = append(servers, server)
			}
		})
	}
	running.Wait()
	if len(servers)+len(failed) == 0 {
		failed = append(failed, fmt.Errorf("redisstore: servers of %s: no primary found", s.link.address))
	}
	slices.SortFunc(servers, func(a, b Server) int { return cmp.Compare(a.Address, b.Address) })
	return servers, errors.Join(failed...)
}

// readInfo parses the output of INFO.
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
