// Package fanout sends a query to all nodes and collects their replies.
//
// It defines how queries and replies travel between nodes, and limits them. It does not interpret them. Nothing is stored or
// sent again: a node that does not reply within a second is missing from the result, which reports that.
package fanout

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// timeout is how long Query waits for replies, and how long a node may take for its own.
	timeout = time.Second
	// maxReply is the maximum size of a reply in bytes.
	maxReply = 1 << 20
)

// Bus delivers messages to all nodes; redisstore.Store implements it.
type Bus interface {
	// Publish sends a message to all current subscribers of a channel.
	Publish(ctx context.Context, channel string, message []byte) error
	// Subscribe calls receive for each message on the channels until ctx ends or the connection fails. When a channel is
	// subscribed, its first message is nil.
	Subscribe(ctx context.Context, channels []string, receive func(channel string, message []byte)) error
}

// Options configures a Node. All fields are optional.
type Options struct {
	// Bus connects the nodes; nil if there is only this one.
	Bus Bus
	// Node is the readable name of this node.
	Node string
	// Nodes returns the current number of nodes, including this one. It is required with Bus.
	Nodes func() int
	// Log receives connection failures.
	Log *slog.Logger
}

// Node sends queries to all nodes, and replies to the queries of others.
type Node struct {
	bus     Bus
	name    string
	nodes   func() int
	log     *slog.Logger
	id      string // of this node
	inbox   string // the channel of replies to it
	topics  map[string]*topic
	replies *rate.Limiter // limits replies to other nodes

	mu      sync.Mutex
	pending map[string]*pendingQuery // by query id
	ready   chan struct{}            // closed while subscribed
	err     error                    // why the node is not subscribed
}

// New returns a node. It receives nothing until it runs.
func New(o Options) *Node {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	id := rand.Text()
	return &Node{
		bus: o.Bus, name: o.Node, nodes: o.Nodes, log: o.Log,
		id: id, inbox: replyChannel(id),
		replies: rate.NewLimiter(repliesPerSecond, repliesPerSecond),
		topics:  map[string]*topic{}, pending: map[string]*pendingQuery{}, ready: make(chan struct{}),
	}
}

// replies contains the replies of the nodes.
type replies struct {
	all     []json.RawMessage // this node's first
	nodes   int               // the assumed number of nodes
	problem string            // which replies are missing, and why
}

// pendingQuery is a query that waits for replies.
type pendingQuery struct {
	missing int             // number of missing replies
	seen    map[string]bool // nodes that have replied
	all     []json.RawMessage
	failed  []string
	done    chan struct{} // closed when no reply is missing
}

// query sends a query to all nodes, beginning with this one. It fails only if this node cannot reply.
func (n *Node) query(ctx context.Context, topic string, query any) (replies, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	encoded, err := json.Marshal(query)
	if err != nil {
		return replies{}, fmt.Errorf("topic %s: encode the query: %w", topic, err)
	}
	t := n.topics[topic]
	if t == nil {
		return replies{}, fmt.Errorf("topic %q not found", topic)
	}
	// An invalid query fails here and is not sent to other nodes.
	own, err := t.reply(ctx, encoded)
	if err != nil {
		return replies{}, err
	}
	got := replies{all: []json.RawMessage{own}, nodes: 1}
	if n.bus != nil {
		got.nodes = max(1, n.nodes())
	}
	if got.nodes > 1 {
		n.queryOthers(ctx, message{Topic: topic, Query: encoded}, &got)
	}
	return got, nil
}

// queryOthers adds the replies of the other nodes.
func (n *Node) queryOthers(ctx context.Context, m message, got *replies) {
	m.ID = rand.Text()
	p := &pendingQuery{missing: got.nodes - 1, seen: map[string]bool{}, done: make(chan struct{})}
	n.mu.Lock()
	n.pending[m.ID] = p
	ready := n.ready
	n.mu.Unlock()
	var sendErr error
	select {
	case <-ready:
		if sendErr = n.send(ctx, queryChannel, m); sendErr == nil {
			select {
			case <-p.done:
			case <-ctx.Done():
			}
		}
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pending, m.ID)
	got.all = append(got.all, p.all...)
	problems := p.failed
	if p.missing > 0 {
		problem := fmt.Sprintf("%d of %d nodes did not answer in time", p.missing, got.nodes)
		if sendErr == nil {
			sendErr = n.err
		}
		if sendErr != nil {
			problem += ": " + sendErr.Error()
		}
		problems = append(problems, problem)
	}
	got.problem = strings.Join(problems, "; ")
}

// collect adds a reply to its query. A reply to an unknown query is late or invalid, and is ignored.
func (n *Node) collect(m *message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pending[m.ID]
	if p == nil || p.missing == 0 || p.seen[m.From] {
		return
	}
	p.seen[m.From] = true
	if m.Error != "" {
		p.failed = append(p.failed, fmt.Sprintf("node %s failed: %s", m.Name, m.Error))
	} else {
		p.all = append(p.all, m.Reply)
	}
	if p.missing--; p.missing == 0 {
		close(p.done)
	}
}
