package fanout

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

const (
	// repliesPerSecond limits the replies to other nodes, so that queries cannot overload a node.
	repliesPerSecond = 20
	// maxWaiting is the maximum number of waiting queries of a topic.
	maxWaiting = 4
)

// Header is part of every reply.
type Header struct {
	// Version is the version of the reply's format. It changes when a key is renamed or removed or changes its meaning, not
	// when a key is added. Replies of nodes with another version are ignored.
	Version int `json:"version"`
	// Nodes is always 1, the number of nodes that replied; nodes of earlier releases read it.
	Nodes int `json:"nodes"`
}

func (h Header) header() Header { return h }

// Topic is a kind of query with its replies. Query sends one to all nodes.
type Topic[Q any, A interface{ header() Header }] struct {
	node  *Node
	name  string
	merge func(q Q, replies []A) A
}

// Coverage reports which nodes have replied.
type Coverage struct {
	// Nodes is the assumed number of nodes, Replied the number of those that replied.
	Nodes   int `json:"nodes"`
	Replied int `json:"nodesAnswered"`
	// Problem is why replies are missing; "" if none is.
	Problem string `json:"problem,omitempty"`
}

// NewTopic adds a topic to a node that does not run yet. reply returns the reply of this node, and merge combines the replies
// of several nodes.
func NewTopic[Q any, A interface{ header() Header }](n *Node, name string, reply func(Q) A, merge func(Q, []A) A) *Topic[Q, A] {
	n.serve(name, func(_ context.Context, query json.RawMessage) (any, error) {
		var q Q
		if err := json.Unmarshal(query, &q); err != nil {
			return nil, fmt.Errorf("decode the query: %w", err)
		}
		return reply(q), nil
	})
	return &Topic[Q, A]{node: n, name: name, merge: merge}
}

// Query returns the merged replies of all nodes. It waits for them until ctx ends, for at most a second, and fails only if
// this node cannot reply.
func (t *Topic[Q, A]) Query(ctx context.Context, q Q) (merged A, c Coverage, err error) {
	collected, err := t.node.query(ctx, t.name, q)
	if err != nil {
		return merged, c, err
	}
	var usable []A
	for _, text := range collected.all { // this node's first
		var a A
		if json.Unmarshal(text, &a) == nil && (len(usable) == 0 || a.header().Version == usable[0].header().Version) {
			usable = append(usable, a)
		}
	}
	c = Coverage{Nodes: collected.nodes, Replied: len(usable), Problem: collected.problem}
	if len(usable) < len(collected.all) && c.Problem == "" {
		c.Problem = "some nodes run another release and replied in another format"
	}
	return t.merge(q, usable), c, nil
}

// topic is a topic that a node replies to.
type topic struct {
	name    string
	replyTo func(ctx context.Context, query json.RawMessage) (any, error)
	waiting chan waitingQuery
}

type waitingQuery struct {
	message
	received time.Time
}

// serve registers the function that replies to queries on a topic. Queries of other nodes are handled one at a time. The
// context ends when the caller no longer waits for the reply.
func (n *Node) serve(name string, replyTo func(ctx context.Context, query json.RawMessage) (any, error)) {
	n.topics[name] = &topic{name: name, replyTo: replyTo, waiting: make(chan waitingQuery, maxWaiting)}
}

func (t *topic) reply(ctx context.Context, query json.RawMessage) (json.RawMessage, error) {
	reply, err := t.replyTo(ctx, query)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return nil, fmt.Errorf("topic %s: encode the reply: %w", t.name, err)
	}
	return text, nil
}

// queue adds a query of another node to the queue of its topic. It drops the query if there are too many.
func (n *Node) queue(m message) {
	t := n.topics[m.Topic]
	if t == nil {
		return
	}
	now := time.Now()
	if !n.replies.AllowN(now, 1) {
		return
	}
	select {
	case t.waiting <- waitingQuery{m, now}:
	default:
	}
}

// work replies to the queries of other nodes on a topic until ctx ends.
func (n *Node) work(ctx context.Context, t *topic) {
	for {
		select {
		case q := <-t.waiting:
			n.reply(ctx, t, q)
		case <-ctx.Done():
			return
		}
	}
}

// reply replies to a query of another node, unless the query has waited so long that the other node has given up.
func (n *Node) reply(ctx context.Context, t *topic, q waitingQuery) {
	ctx, cancel := context.WithDeadline(ctx, q.received.Add(timeout))
	defer cancel()
	if ctx.Err() != nil {
		return
	}
	r := message{ID: q.ID}
	reply, err := t.reply(ctx, q.Query)
	switch {
	case err != nil:
		r.Error = err.Error()
	case len(reply) > maxReply:
		r.Error = fmt.Sprintf("reply of %d bytes: must be at most %d: query less", len(reply), maxReply)
	default:
		r.Reply = reply
	}
	if err := n.send(ctx, replyChannel(q.From), r); err != nil && ctx.Err() == nil {
		n.log.Warn("cannot reply to another node", "topic", t.name, "error", err)
	}
}
