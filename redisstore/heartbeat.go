package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

const (
	// heartbeatInterval is how often a node announces itself, agrees on the signing key and refreshes what it knows about the
	// servers: which exist, whether they have the scripts, and which slots they hold.
	heartbeatInterval = 2 * time.Second
	// announceTTL is longer than a few missed heartbeats, so that a slow Redis does not look like a lost node.
	announceTTL = 10 * time.Second
	// controlTimeout limits calls that no decision waits for.
	controlTimeout = time.Second

	// joinChannel is the channel on which a joining node is published. The other nodes then announce themselves again to
	// learn their ranks: within joinSpread, so that they do not all do so at once, and at most once per joinPause.
	joinChannel = "nodes"
	joinSpread  = 100 * time.Millisecond
	joinPause   = 500 * time.Millisecond

	maxNodes = 1_000_000
)

// start starts the goroutine that connects, and then runs the heartbeat until Close.
func (s *Store) start() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.closing = stop, ctx.Done()
	s.done.Go(func() {
		if !s.connect(ctx) {
			return
		}
		tick := time.NewTicker(heartbeatInterval)
		defer tick.Stop()
		announceTimer := time.NewTimer(0)
		defer announceTimer.Stop()
		<-announceTimer.C
		var last time.Time // when this node last announced itself because of a join
		for due := false; ; {
			select {
			case <-tick.C:
				s.heartbeat(ctx)
			case <-s.joinSignal:
				if !due {
					due = true
					announceTimer.Reset(max(time.Until(last.Add(joinPause)), 0) + rand.N(joinSpread)) //nolint:gosec // it spreads nodes
				}
			case <-announceTimer.C:
				due, last = false, time.Now()
				s.announceWithTimeout(ctx, announceTTL)
			case <-ctx.Done():
				s.announceWithTimeout(context.WithoutCancel(ctx), 0) // sign off
				return
			}
		}
	})
}

// heartbeat runs one heartbeat. Failures are ignored: the next heartbeat tries again, and no decision depends on it.
func (s *Store) heartbeat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	if client, err := s.link.get(ctx); err == nil {
		s.refreshServers(ctx, client)
	}
	_ = s.announceFor(ctx, announceTTL)
	if client, err := s.link.get(ctx); err == nil && s.watchesLoss {
		s.watchLoss(ctx, client)
	}
	_, _ = s.agreeOnKey(ctx) // every time, because Redis may have lost its data
}

// announceWithTimeout announces this node for d, within controlTimeout.
func (s *Store) announceWithTimeout(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	_ = s.announceFor(ctx, d)
}

// handleJoin handles a message on joinChannel: the number of nodes after a join. An empty message means that the subscription
// is active; joins before that may have been missed.
func (s *Store) handleJoin(message string) {
	if nodes, err := strconv.ParseInt(message, 10, 64); err == nil && nodes <= maxNodes {
		s.updateMembers(func(m membership) membership { return m.joined(nodes) })
	}
	select {
	case s.joinSignal <- struct{}{}:
	default:
	}
}

// announceFor announces this node for d, or signs it off if d is 0. It learns the number of nodes, this node's rank and the
// store's time.
func (s *Store) announceFor(ctx context.Context, d time.Duration) error {
	client, err := s.client(ctx)
	if err != nil {
		return err
	}
	return s.announceOn(ctx, client, d)
}

// announceOn does the work of announceFor on a connection that charges may not use yet.
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
	s.clockOffset.Store(values[1] - now.UnixMicro())
	if d > 0 {
		reply := announcement{
			nodes: max(1, values[0]), rank: values[2], until: values[1]/1000 + d.Milliseconds(), kept: values[3] == 1,
		}
		s.updateMembers(func(m membership) membership { return m.observe(reply, now) })
	}
	return nil
}

// updateMembers replaces the membership atomically.
func (s *Store) updateMembers(update func(membership) membership) {
	for {
		known := s.members.Load()
		next := update(*known)
		if s.members.CompareAndSwap(known, &next) {
			return
		}
	}
}

// refreshServers loads the scripts on servers that lack them because they are new, restarted or flushed, and in a Cluster
// learns which shard holds which slots. A server that was missed answers NOSCRIPT once per call in flight.
func (s *Store) refreshServers(ctx context.Context, client rueidis.Client) {
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

// learnShards maps each slot to the lowest slot of its shard.
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
