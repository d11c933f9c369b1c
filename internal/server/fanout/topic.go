package fanout

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

const (
	// answersPerSecond is how many questions of others a node answers, so that nobody can slow it down by asking.
	answersPerSecond = 20
	// waiting is how many questions of a topic may wait while one is answered.
	waiting = 4
)

// Header is part of every answer.
type Header struct {
	// Version is that of the answer's form. It changes when a key is renamed or removed or means something else, not when one is
	// added. Answers of nodes with another version are left out.
	Version int `json:"version"`
	// Nodes is 1: how many nodes have answered, for nodes of earlier releases.
	Nodes int `json:"nodes"`
}

func (h Header) header() Header { return h }

// Topic is a question that nodes ask each other.
type Topic[Q any, A interface{ header() Header }] struct {
	node  *Node
	name  string
	merge func(q Q, answers []A) A
}

// Coverage says which nodes have answered.
type Coverage struct {
	// Nodes is how many there are believed to be.
	Nodes    int `json:"nodes"`
	Answered int `json:"nodesAnswered"`
	// Problem is why some are missing; "" if none is.
	Problem string `json:"problem,omitempty"`
}

// NewTopic adds a topic to a node before it runs: how the node answers, and how the answers of several nodes become one.
func NewTopic[Q any, A interface{ header() Header }](n *Node, name string, answer func(Q) A, merge func(Q, []A) A) *Topic[Q, A] {
	n.serve(name, func(_ context.Context, question json.RawMessage) (any, error) {
		var q Q
		if err := json.Unmarshal(question, &q); err != nil {
			return nil, fmt.Errorf("the question cannot be read: %w", err)
		}
		return answer(q), nil
	})
	return &Topic[Q, A]{node: n, name: name, merge: merge}
}

// Ask merges the answers of all nodes. It waits for them as long as ctx lets it, at most a second, and fails only if this node
// cannot answer.
func (t *Topic[Q, A]) Ask(ctx context.Context, q Q) (merged A, c Coverage, err error) {
	collected, err := t.node.ask(ctx, t.name, q)
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
	c = Coverage{Nodes: collected.nodes, Answered: len(usable), Problem: collected.problem}
	if len(usable) < len(collected.all) && c.Problem == "" {
		c.Problem = "some nodes are of another release, and answered in another form"
	}
	return t.merge(q, usable), c, nil
}

// topic is what a node can be asked for.
type topic struct {
	name    string
	answer  func(ctx context.Context, question json.RawMessage) (any, error)
	waiting chan waitingQuestion
}

type waitingQuestion struct {
	message
	heard time.Time
}

// serve sets how this node answers questions on a topic. Those of others come one at a time. The context ends when nobody waits
// for the answer any more.
func (n *Node) serve(name string, answer func(ctx context.Context, question json.RawMessage) (any, error)) {
	n.topics[name] = &topic{name: name, answer: answer, waiting: make(chan waitingQuestion, waiting)}
}

func (t *topic) ask(ctx context.Context, question json.RawMessage) (json.RawMessage, error) {
	answer, err := t.answer(ctx, question)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("the answer on %s: %w", t.name, err)
	}
	return text, nil
}

// queue lets another's question wait for its turn. It is dropped if there are too many.
func (n *Node) queue(m message) {
	t := n.topics[m.Topic]
	if t == nil {
		return
	}
	now := time.Now()
	if !n.pace.AllowN(now, 1) {
		return
	}
	select {
	case t.waiting <- waitingQuestion{m, now}:
	default:
	}
}

// work answers the questions of others on a topic, until ctx ends.
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

// reply does nothing if the question has waited for so long that nobody waits for the answer.
func (n *Node) reply(ctx context.Context, t *topic, q waitingQuestion) {
	ctx, cancel := context.WithDeadline(ctx, q.heard.Add(patience))
	defer cancel()
	if ctx.Err() != nil {
		return
	}
	r := message{ID: q.ID}
	answer, err := t.ask(ctx, q.Question)
	switch {
	case err != nil:
		r.Error = err.Error()
	case len(answer) > maxAnswer:
		r.Error = fmt.Sprintf("the answer has %d bytes, the most is %d: ask for less", len(answer), maxAnswer)
	default:
		r.Answer = answer
	}
	if err := n.send(ctx, answersTo(q.From), r); err != nil && ctx.Err() == nil {
		n.log.Warn("another node is not answered", "topic", t.name, "error", err)
	}
}
