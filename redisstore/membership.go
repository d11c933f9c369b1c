package redisstore

import "time"

// maxTurn is how far apart two announcements of a node may be, by its own clock and by the store's, for it to have observed the store
// without a break between them: no turn was missed. Announcements of other nodes then last until these have had a turn again, even
// if they had missed one before.
const maxTurn = keepEvery * 3 / 2

// membership is what one node knows of the nodes that share its namespace.
//
// The set of announcements may be lost: Redis restarts empty, fails over to a replica that lacks them, or is unavailable for longer
// than they last. It then has too few nodes until all have announced themselves again, and if Redis is lost once more before that,
// shares of so few nodes would add up to more than the limit. So nodes and rank, which belong together, are replaced at once only by
// those of as large a set or a larger one; by those of a smaller set once the node has observed the store without a break for as
// long as announcements last. In a set that was not lost, nodes that sign off or expire count no longer at once.
type membership struct {
	nodes, rank int64     // rank is of this node, from 1
	until       int64     // this node's last announcement counts, in milliseconds of the store's clock
	since       time.Time // the store is observed without a break
	last        time.Time // announcement
}

// announcement is what the store said to one.
type announcement struct {
	nodes, rank, until int64
	kept               bool // the previous announcement of this node was still there: so was all that the store had said with it
}

// observe returns the membership after an announcement that was answered now.
func (m membership) observe(a announcement, now time.Time) membership {
	next := membership{nodes: m.nodes, rank: m.rank, until: a.until, since: m.since, last: now}
	if !a.kept || now.Sub(m.last) > maxTurn || a.until-m.until > maxTurn.Milliseconds() {
		next.since = now
	}
	if a.nodes >= m.nodes || now.Sub(next.since) >= announceTTL {
		next.nodes, next.rank = a.nodes, a.rank
	}
	return next
}

// joined returns the membership after another node has joined, and there are as many as that one was told. This node's rank among
// them is known after its next announcement.
func (m membership) joined(nodes int64) membership {
	m.nodes = max(m.nodes, nodes)
	return m
}
