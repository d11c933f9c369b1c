package fanout

import (
	"context"
	"encoding/json"
)

// version is that of the messages. A node does not hear those of another.
const version = 1

// questions is the channel that all nodes hear.
const questions = "questions"

// answersTo is the channel that only one node hears.
func answersTo(node string) string { return "answers:" + node }

// message is a question or an answer on its way.
type message struct {
	Version int    `json:"v"`
	ID      string `json:"id"`             // of the question
	From    string `json:"from"`           // the id of the node that sends it
	Name    string `json:"name,omitempty"` // and its name
	// A question has a topic, and an answer has one of the last two.
	Topic    string          `json:"topic,omitempty"`
	Question json.RawMessage `json:"question,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Error    string          `json:"error,omitempty"`
}

func (n *Node) send(ctx context.Context, channel string, m message) error {
	m.Version, m.From, m.Name = version, n.id, n.name
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return n.bus.Publish(ctx, channel, text)
}

// hear is told everything on the channels of this node. What it does not understand is not for it.
func (n *Node) hear(channel string, text []byte) {
	if text == nil {
		if channel == n.inbox { // the last to be subscribed to
			n.hears()
		}
		return
	}
	var m message
	// An answer of the largest size has an envelope.
	if len(text) > maxAnswer+4096 || json.Unmarshal(text, &m) != nil || m.Version != version || m.From == n.id {
		return
	}
	if channel == n.inbox {
		n.take(&m)
	} else {
		n.queue(m)
	}
}
