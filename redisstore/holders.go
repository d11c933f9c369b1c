package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// The ID of a holder begins with a hash of its node, which is followed by a number of its limiter in limiterBits, and by
// headgate.HolderBits.
const (
	limiterBits = 8
	nodeShift   = limiterBits + headgate.HolderBits
	maxNodeName = 100
)

// hostName returns the name of the host, or "".
func hostName() string {
	name, _ := os.Hostname()
	return name
}

// printable returns a name that does no harm on a terminal, and is not too long.
func printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, name)
	return strings.ToValidUTF8(name[:min(len(name), maxNodeName)], "")
}

// nodeHash returns the upper bits of the IDs of a node's holders.
func nodeHash(node string) uint64 {
	sum := sha256.Sum256([]byte(node))
	return binary.BigEndian.Uint64(sum[:]) >> nodeShift
}

// HolderID returns an ID from which Holders finds the node.
func (s *Store) HolderID() uint64 {
	limiter := uint64(s.limiters.Add(1)) % (1 << limiterBits)
	return nodeHash(s.node)<<nodeShift | limiter<<headgate.HolderBits
}

// Holders returns who has units of a counter. The name of a node is known for as long as the node is announced: a killed one for
// ten seconds.
func (s *Store) Holders(ctx context.Context, subject headgate.Subject, counter headgate.Counter) ([]headgate.Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	client, err := s.link.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("redisstore: holders: %w", err)
	}
	text, err := client.Do(ctx, client.B().Hget().Key(s.Key(subject)).Field(string(field(counter))).Build()).AsBytes()
	switch {
	case rueidis.IsRedisNil(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("redisstore: holders: %w", s.withMissingRights(err, "+@read"))
	}
	var state headgate.State
	stored := reply{rest: append([]byte{foundAlone}, text...)}
	if stored.slots(&state); stored.broken || len(stored.rest) > 0 {
		return nil, fmt.Errorf("redisstore: holders: %w", errReply)
	}
	nodes, err := s.announced(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("redisstore: holders: %w", err)
	}
	names := make(map[uint64]string, len(nodes))
	for _, node := range nodes {
		_, name, _ := strings.Cut(node, " ")
		names[nodeHash(node)] = printable(name)
	}
	all := state.HoldersAt(s.wall().Add(time.Duration(s.clockOffset.Load()) * time.Microsecond))
	for i := range all {
		all[i].Node = names[all[i].ID>>nodeShift]
	}
	return all, nil
}

// NodeNames returns the names of the nodes that share the namespace, this one included. A killed one is among them for ten seconds.
func (s *Store) NodeNames(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	client, err := s.link.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("redisstore: node names: %w", err)
	}
	names, err := s.announced(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("redisstore: node names: %w", err)
	}
	for i := range names {
		_, name, _ := strings.Cut(names[i], " ")
		names[i] = printable(name)
	}
	return names, nil
}

// announced returns the nodes that are announced, each as its random ID, a space and its name.
func (s *Store) announced(ctx context.Context, client rueidis.Client) ([]string, error) {
	nodes, err := client.Do(ctx, client.B().Zrange().Key(s.prefix+"nodes").Min("0").Max("-1").Build()).AsStrSlice()
	return nodes, s.withMissingRights(err, "+@read")
}
