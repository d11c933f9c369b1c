package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// A keeper goroutine announces this node and keeps up with the servers: which there are, whether they have the scripts,
// and which slots are whose.
const (
	keepEvery = 2 * time.Second
	// announceTTL outlives a few missed turns, so that a slow Redis does not look like a lost node.
	announceTTL = 10 * time.Second
	keepTimeout = time.Second

	// joinChannel is where a node that joins is published. The others announce themselves again, to learn their ranks: within joinSpread,
	// so that not all do at once, and not again within joinPause.
	joinChannel = "nodes"
	joinSpread  = 100 * time.Millisecond
	joinPause   = 500 * time.Millisecond

	maxNodes = 1_000_000
)

// start lets the keeper connect and then take its turns.
func (s *Store) start() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.closing = stop, ctx.Done()
	s.done.Go(func() {
		if !s.connect(ctx) {
			return
		}
		tick := time.NewTicker(keepEvery)
		defer tick.Stop()
		changed := time.NewTimer(0)
		defer changed.Stop()
		<-changed.C
		var last time.Time // that another node joined and this one announced itself again
		for due := false; ; {
			select {
			case <-tick.C:
				s.keep(ctx)
			case <-s.changed:
				if !due {
					due = true
					changed.Reset(max(time.Until(last.Add(joinPause)), 0) + rand.N(joinSpread)) //nolint:gosec // it spreads nodes
				}
			case <-changed.C:
				due, last = false, time.Now()
				s.announceWithin(ctx, announceTTL)
			case <-ctx.Done():
				s.announceWithin(context.WithoutCancel(ctx), 0) // to sign off
				return
			}
		}
	})
}

// keep is one turn. What fails is tried again with the next: nothing here is needed for a decision.
func (s *Store) keep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if client, err := s.link.get(ctx); err == nil {
		s.keepServers(ctx, client)
	}
	_ = s.announceFor(ctx, announceTTL)
	_, _ = s.agreeOnKey(ctx) // again and again, because Redis may have been emptied
}

// announceWithin announces this node for a while, as far as that can be done in keepTimeout.
func (s *Store) announceWithin(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	_ = s.announceFor(ctx, d)
}

// hearJoin notes that another node has joined, or with no message that from now on it would be heard of.
func (s *Store) hearJoin(message string) {
	if nodes, err := strconv.ParseInt(message, 10, 64); err == nil && nodes <= maxNodes {
		s.updateMembers(func(m membership) membership { return m.joined(nodes) })
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// announceFor announces this node for a while, 0 to sign it off, and learns how many nodes there are, which of them it is, and what
// time it is.
func (s *Store) announceFor(ctx context.Context, d time.Duration) error {
	client, err := s.client(ctx)
	if err != nil {
		return err
	}
	return s.announceOn(ctx, client, d)
}

// announceOn is announceFor on a connection that charges may not use yet.
func (s *Store) announceOn(ctx context.Context, client rueidis.Client, d time.Duration) error {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	msg, err := s.run(ctx, client, s.announce, []string{s.prefix + "nodes"},
		s.node, number(d.Milliseconds()), number(s.members.Load().until), s.channels+joinChannel)
	if err != nil {
		return err
	}
	values, err := msg.AsIntSlice()
	if err != nil || len(values) != 4 {
		return errReply
	}
	now := s.wall()
	s.ahead.Store(values[1] - now.UnixMicro())
	if d > 0 {
		said := announcement{
			nodes: max(1, values[0]), rank: values[2], until: values[1]/1000 + d.Milliseconds(), kept: values[3] == 1,
		}
		s.updateMembers(func(m membership) membership { return m.observe(said, now) })
	}
	return nil
}

// updateMembers replaces what is known of the nodes.
func (s *Store) updateMembers(update func(membership) membership) {
	for {
		known := s.members.Load()
		next := update(*known)
		if s.members.CompareAndSwap(known, &next) {
			return
		}
	}
}

// keepServers loads the scripts on servers that do not have them, be they new, restarted or flushed; and in a
// Cluster learns which shard has which slots. A server that is missed answers NOSCRIPT once per call under way.
func (s *Store) keepServers(ctx context.Context, client rueidis.Client) {
	for _, server := range client.Nodes() {
		for _, sc := range [...]script{s.take, s.announce} {
			have, err := server.Do(ctx, server.B().ScriptExists().Sha1(sc.sha).Build()).AsIntSlice()
			if err == nil && len(have) == 1 && have[0] == 0 {
				server.Do(ctx, server.B().ScriptLoad().Script(sc.text).Build())
			}
		}
	}
	if s.cluster {
		if shards, ok := learnShards(ctx, client); ok {
			s.shards.Store(shards)
		}
	}
}

// learnShards numbers each slot with the lowest slot of its shard.
func learnShards(ctx context.Context, client rueidis.Client) (*[slots]uint16, bool) {
	ranges, err := client.Do(ctx, client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, false
	}
	type span struct {
		from, to int64
		primary  string
	}
	var spans []span
	lowest := map[string]int64{}
	for _, r := range ranges {
		parts, err := r.ToArray()
		if err != nil || len(parts) < 3 {
			return nil, false
		}
		from, err1 := parts[0].AsInt64()
		to, err2 := parts[1].AsInt64()
		node, err3 := parts[2].ToArray()
		if err1 != nil || err2 != nil || err3 != nil || len(node) < 3 || from < 0 || to >= slots {
			return nil, false
		}
		id, _ := node[2].ToString()
		if low, ok := lowest[id]; !ok || from < low {
			lowest[id] = from
		}
		spans = append(spans, span{from, to, id})
	}
	var table [slots]uint16
	for _, sp := range spans {
		for slot := sp.from; slot <= sp.to; slot++ {
			table[slot] = uint16(lowest[sp.primary])
		}
	}
	return &table, true
}
