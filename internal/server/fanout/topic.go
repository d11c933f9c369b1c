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

// Serve says how this node answers questions on a topic, all before it runs. Those of others come one at a time. The context
// ends when nobody waits for the answer any more.
func (n *Node) Serve(name string, answer func(ctx context.Context, question json.RawMessage) (any, error)) {
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
