package fanout

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
)

type sum struct {
	Header
	Total int `json:"total"`
}

// repliers is a bus on which nodes reply to each query with fixed replies.
type repliers struct {
	node    *Node
	replies []string
}

func (r *repliers) Publish(_ context.Context, _ string, text []byte) error {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	for i, text := range r.replies {
		reply, err := json.Marshal(message{Version: version, ID: m.ID, From: strconv.Itoa(i), Reply: json.RawMessage(text)})
		if err != nil {
			return err
		}
		r.node.receive(r.node.inbox, reply)
	}
	return nil
}

func (r *repliers) Subscribe(context.Context, []string, func(string, []byte)) error { return nil }

// TestTopic checks that replies are merged, and that those in another format are ignored and reported.
func TestTopic(t *testing.T) {
	t.Parallel()
	const otherFormat = "some nodes run another release and replied in another format"
	for name, c := range map[string]struct {
		others []string
		total  int
		want   Coverage
	}{
		"alone":           {nil, 7, Coverage{1, 1, ""}},
		"all":             {[]string{`{"version": 1, "nodes": 1, "total": 20}`, `{"version": 1, "total": 300}`}, 327, Coverage{3, 3, ""}},
		"another version": {[]string{`{"version": 2, "nodes": 1, "total": 20}`, `{"version": 1, "total": 300}`}, 307, Coverage{3, 2, otherFormat}},
		"another type":    {[]string{`[]`, `{"version": 1, "total": "many"}`}, 7, Coverage{3, 1, otherFormat}},
	} {
		bus := &repliers{replies: c.others}
		bus.node = New(Options{Bus: bus, Nodes: func() int { return 1 + len(c.others) }})
		bus.node.connected()
		topic := NewTopic(bus.node, "sum", func(q int) sum { return sum{Header{1, 1}, q} }, func(_ int, all []sum) (merged sum) {
			for _, a := range all {
				merged.Total += a.Total
			}
			return merged
		})
		merged, coverage, err := topic.Query(t.Context(), 7)
		if err != nil || merged.Total != c.total || coverage != c.want {
			t.Errorf("%s: %d of %+v, %v", name, merged.Total, coverage, err)
		}
		if _, err := bus.node.query(t.Context(), "sum", "seven"); err == nil {
			t.Errorf("%s: a query of another type got a reply", name)
		}
	}
}
