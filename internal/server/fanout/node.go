// Package fanout asks all nodes the same question, and collects what they answer.
//
// It knows how questions and answers travel between nodes, and how much of them a node takes. It does not know what they are
// about. Nothing is kept or sent again: whoever does not answer within a second is missing, and the answers say so.
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
	// patience is how long Ask waits for answers, and how long a node may take for its own.
	patience = time.Second
	// maxAnswer is how many bytes an answer may have.
	maxAnswer = 1 << 20
)

// Bus is what all nodes hear; see redisstore.Store.
type Bus interface {
	// Publish sends a message to all who subscribe to a channel now.
	Publish(ctx context.Context, channel string, message []byte) error
	// Subscribe hears channels until ctx ends or it no longer can. The first message on each is nil, when it is subscribed to.
	Subscribe(ctx context.Context, channels []string, hear func(channel string, message []byte)) error
}

// Options say who there is to ask. All may be left out.
type Options struct {
	// Bus connects the nodes; nil if there is only this one.
	Bus Bus
	// Node is this node's name, for people.
	Node string
	// Nodes is how many nodes there are now, this one included. It must be there if Bus is.
	Nodes func() int
	// Log is told when the others cannot be heard.
	Log *slog.Logger
}

// Node is the part of one node: it answers, and it asks.
type Node struct {
	bus    Bus
	name   string
	nodes  func() int
	log    *slog.Logger
	id     string // of this node
	inbox  string // the channel of answers to it
	topics map[string]*topic
	pace   *rate.Limiter // of others' questions

	mu      sync.Mutex
	asked   map[string]*asking // by the question's id
	hearing chan struct{}      // closed while the others can be heard
	deaf    error              // why they cannot
}

// New makes a node's part. It hears nobody until it runs.
func New(o Options) *Node {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	id := rand.Text()
	return &Node{
		bus: o.Bus, name: o.Node, nodes: o.Nodes, log: o.Log,
		id: id, inbox: answersTo(id),
		pace:   rate.NewLimiter(answersPerSecond, answersPerSecond),
		topics: map[string]*topic{}, asked: map[string]*asking{}, hearing: make(chan struct{}),
	}
}

// answers are what the nodes said.
type answers struct {
	all     []json.RawMessage // this node's first
	nodes   int               // how many there are believed to be
	problem string            // which answers are missing, and why
}

// asking is a question that is waiting for answers.
type asking struct {
	missing int             // how many are yet to answer
	heard   map[string]bool // the nodes that have
	all     []json.RawMessage
	failed  []string
	done    chan struct{} // closed when nobody is missing
}

// ask asks all nodes, this one first. It fails only if this node cannot answer.
func (n *Node) ask(ctx context.Context, topic string, question any) (answers, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked, err := json.Marshal(question)
	if err != nil {
		return answers{}, fmt.Errorf("the question on %s: %w", topic, err)
	}
	t := n.topics[topic]
	if t == nil {
		return answers{}, fmt.Errorf("no node is asked for %q", topic)
	}
	// A question that is wrong fails here, and never leaves this node.
	own, err := t.ask(ctx, asked)
	if err != nil {
		return answers{}, err
	}
	got := answers{all: []json.RawMessage{own}, nodes: 1}
	if n.bus != nil {
		got.nodes = max(1, n.nodes())
	}
	if got.nodes > 1 {
		n.askOthers(ctx, message{Topic: topic, Question: asked}, &got)
	}
	return got, nil
}

// askOthers adds the answers of the other nodes.
func (n *Node) askOthers(ctx context.Context, m message, got *answers) {
	m.ID = rand.Text()
	a := &asking{missing: got.nodes - 1, heard: map[string]bool{}, done: make(chan struct{})}
	n.mu.Lock()
	n.asked[m.ID] = a
	hearing := n.hearing
	n.mu.Unlock()
	var unasked error
	select {
	case <-hearing:
		if unasked = n.send(ctx, questions, m); unasked == nil {
			select {
			case <-a.done:
			case <-ctx.Done():
			}
		}
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.asked, m.ID)
	got.all = append(got.all, a.all...)
	problems := a.failed
	if a.missing > 0 {
		why := fmt.Sprintf("%d of %d nodes did not answer in time", a.missing, got.nodes)
		if unasked == nil {
			unasked = n.deaf
		}
		if unasked != nil {
			why += ": " + unasked.Error()
		}
		problems = append(problems, why)
	}
	got.problem = strings.Join(problems, "; ")
}

// take notes an answer. One to an unknown question came too late, or is nobody's.
func (n *Node) take(m *message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.asked[m.ID]
	if a == nil || a.missing == 0 || a.heard[m.From] {
		return
	}
	a.heard[m.From] = true
	if m.Error != "" {
		a.failed = append(a.failed, fmt.Sprintf("node %s failed: %s", m.Name, m.Error))
	} else {
		a.all = append(a.all, m.Answer)
	}
	if a.missing--; a.missing == 0 {
		close(a.done)
	}
}
