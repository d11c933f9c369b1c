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

// repliers is a bus on which nodes with these answers reply to each question.
type repliers struct {
	asker   *Node
	answers []string
}

func (r *repliers) Publish(_ context.Context, _ string, text []byte) error {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	for i, answer := range r.answers {
		reply, err := json.Marshal(message{Version: version, ID: m.ID, From: strconv.Itoa(i), Answer: json.RawMessage(answer)})
		if err != nil {
			return err
		}
		r.asker.hear(r.asker.inbox, reply)
	}
	return nil
}

func (r *repliers) Subscribe(context.Context, []string, func(string, []byte)) error { return nil }

// TestTopic shows that answers are merged, and that those in another form are left out and reported.
func TestTopic(t *testing.T) {
	t.Parallel()
	const otherForm = "some nodes are of another release, and answered in another form"
	for name, c := range map[string]struct {
		others []string
		total  int
		want   Coverage
	}{
		"alone":           {nil, 7, Coverage{1, 1, ""}},
		"all":             {[]string{`{"version": 1, "nodes": 1, "total": 20}`, `{"version": 1, "total": 300}`}, 327, Coverage{3, 3, ""}},
		"another version": {[]string{`{"version": 2, "nodes": 1, "total": 20}`, `{"version": 1, "total": 300}`}, 307, Coverage{3, 2, otherForm}},
		"another type":    {[]string{`[]`, `{"version": 1, "total": "many"}`}, 7, Coverage{3, 1, otherForm}},
	} {
		bus := &repliers{answers: c.others}
		bus.asker = New(Options{Bus: bus, Nodes: func() int { return 1 + len(c.others) }})
		bus.asker.hears()
		topic := NewTopic(bus.asker, "sum", func(q int) sum { return sum{Header{1, 1}, q} }, func(_ int, all []sum) (merged sum) {
			for _, a := range all {
				merged.Total += a.Total
			}
			return merged
		})
		merged, coverage, err := topic.Ask(t.Context(), 7)
		if err != nil || merged.Total != c.total || coverage != c.want {
			t.Errorf("%s: %d of %+v, %v", name, merged.Total, coverage, err)
		}
		if _, err := bus.asker.ask(t.Context(), "sum", "seven"); err == nil {
			t.Errorf("%s: a question of another type is answered", name)
		}
	}
}
