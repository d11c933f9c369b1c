package redisstore

import "time"

// maxHeartbeatGap is the maximum time between two announcements of a node, by its own clock and by the store's, for it to
// have observed the store without a break: no heartbeat was missed. The announcements of other nodes then last until their
// next heartbeat, even if they had missed one before.
const maxHeartbeatGap = heartbeatInterval * 3 / 2

// membership is what one node knows about the nodes that share its namespace.
//
// The set of announcements may be lost: Redis restarts empty, fails over to a replica that lacks them, or is unavailable for
// longer than announceTTL. The set is then too small until all nodes have announced themselves again. If Redis is lost again
// before that, the shares of so few nodes would add up to more than the limit. So nodes and rank are replaced together:
// immediately by a set that is at least as large, but by a smaller set only after the node has observed the store without a
// break for announceTTL. If the set was not lost, nodes that sign off or expire are dropped immediately.
type membership struct {
	nodes, rank int64     // rank of this node, from 1
	until       int64     // expiry of this node's last announcement, in milliseconds of the store's clock
	since       time.Time // start of the observation without a break
	last        time.Time // time of the last announcement
}

// announcement is the store's reply to an announcement.
type announcement struct {
	nodes, rank, until int64
	kept               bool // this node's previous announcement still existed, so the set was not lost
}

// observe returns the membership after an announcement that was answered now.
func (m membership) observe(a announcement, now time.Time) membership {
	next := membership{nodes: m.nodes, rank: m.rank, until: a.until, since: m.since, last: now}
	if !a.kept || now.Sub(m.last) > maxHeartbeatGap || a.until-m.until > maxHeartbeatGap.Milliseconds() {
		next.since = now
	}
	if a.nodes >= m.nodes || now.Sub(next.since) >= announceTTL {
		next.nodes, next.rank = a.nodes, a.rank
	}
	return next
}

// joined returns the membership after another node has joined and has published the number of nodes. This node learns its new
// rank from its next announcement.
func (m membership) joined(nodes int64) membership {
	m.nodes = max(m.nodes, nodes)
	return m
}
