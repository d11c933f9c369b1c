package fanout

import (
	"context"
	"encoding/json"
)

// version is the version of the messages. A node ignores messages of other versions.
const version = 1

// queryChannel is the channel of queries, to which all nodes subscribe.
const queryChannel = "questions"

// replyChannel returns the channel of replies to a node, to which only that node subscribes.
func replyChannel(node string) string { return "answers:" + node }

// message is a query or a reply.
type message struct {
	Version int    `json:"v"`
	ID      string `json:"id"`             // of the query
	From    string `json:"from"`           // the id of the sending node
	Name    string `json:"name,omitempty"` // and its name
	// A query has a topic and a query, and a reply has a reply or an error.
	Topic string          `json:"topic,omitempty"`
	Query json.RawMessage `json:"question,omitempty"`
	Reply json.RawMessage `json:"answer,omitempty"`
	Error string          `json:"error,omitempty"`
}

func (n *Node) send(ctx context.Context, channel string, m message) error {
	m.Version, m.From, m.Name = version, n.id, n.name
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return n.bus.Publish(ctx, channel, text)
}

// receive handles a message on a channel of this node. It ignores messages that it cannot decode.
func (n *Node) receive(channel string, text []byte) {
	if text == nil {
		if channel == n.inbox { // the last of the subscriptions
			n.connected()
		}
		return
	}
	var m message
	// The limit allows for the envelope of a reply of the maximum size.
	if len(text) > maxReply+4096 || json.Unmarshal(text, &m) != nil || m.Version != version || m.From == n.id {
		return
	}
	if channel == n.inbox {
		n.collect(&m)
	} else {
		n.queue(m)
	}
}
