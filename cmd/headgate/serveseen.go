package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/server/offenders"
	"github.com/headgate/headgate/internal/server/tracing"
)

// The questions that nodes ask each other.
const (
	topTopic     = "top"
	denialsTopic = "denials"
)

// seen is what this node remembers of its decisions, and how all nodes are asked for it.
type seen struct {
	offenders *offenders.Offenders
	denials   *denials.Log
	nodes     *fanout.Node
	show      config.ShowSubjects
}

// newSeen makes it of a server whose limiter and store are there. Without Redis there is one node.
func newSeen(s *server) *seen {
	names := s.config.ShowSubjects == config.ShowClear
	o := fanout.Options{Node: s.nodeName(), Log: s.log, Nodes: func() int { return 1 }}
	if s.redis != nil {
		// Not what the last decision has heard: whoever decides nothing would hear of nobody.
		o.Bus, o.Nodes = s.redis, s.redis.Nodes
	}
	seen := &seen{
		offenders: offenders.New(offenders.Options{Rules: s.limiter.Rules, Clear: names}),
		denials: denials.New(denials.Options{
			Rules: s.limiter.Rules, Clear: names, Node: s.nodeName(), TraceID: tracing.TraceID, Log: s.log,
		}),
		nodes: fanout.New(o), show: s.config.ShowSubjects,
	}
	s.metrics.DenialsUnrecorded(seen.denials.Unrecorded)
	serveTopic(seen.nodes, topTopic, seen.offenders.Answer)
	serveTopic(seen.nodes, denialsTopic, seen.denials.Answer)
	return seen
}

// Note is told of every decision.
func (s *seen) Note(ctx context.Context, o *headgate.Observation) {
	s.offenders.Note(o)
	s.denials.Note(ctx, o)
}

// Top asks all nodes who is refused most.
func (s *seen) Top(ctx context.Context, q offenders.Query) (offenders.Answer, adminapi.Heard, error) {
	return gatherAll(ctx, s, topTopic, q, func(all []offenders.Answer) (offenders.Answer, int) {
		merged := offenders.Merge(q, all)
		return merged, merged.Nodes
	})
}

// Denials asks all nodes what they have refused.
func (s *seen) Denials(ctx context.Context, q denials.Query) (denials.Answer, adminapi.Heard, error) {
	return gatherAll(ctx, s, denialsTopic, q, func(all []denials.Answer) (denials.Answer, int) {
		merged := denials.Merge(q, all)
		return merged, merged.Nodes
	})
}

// serveTopic lets a node answer questions of a kind.
func serveTopic[Q, A any](n *fanout.Node, topic string, answer func(Q) A) {
	n.Serve(topic, func(_ context.Context, question json.RawMessage) (any, error) {
		var q Q
		if err := json.Unmarshal(question, &q); err != nil {
			return nil, fmt.Errorf("the question cannot be read: %w", err)
		}
		return answer(q), nil
	})
}

// gatherAll puts together what all nodes answer, and says of how many of them that is: not of those of another release, which
// answer in another form.
func gatherAll[Q, A any](ctx context.Context, s *seen, topic string, q Q, merge func([]A) (A, int)) (
	merged A, heard adminapi.Heard, err error,
) {
	said, err := s.nodes.Ask(ctx, topic, q)
	if err != nil {
		return merged, heard, err
	}
	heard = adminapi.Heard{Nodes: said.Nodes, Problem: said.Problem, ShowSubjects: string(s.show)}
	var answers []A
	for _, text := range said.All {
		var a A
		if json.Unmarshal(text, &a) == nil {
			answers = append(answers, a)
		}
	}
	merged, heard.Answered = merge(answers)
	if heard.Answered < len(said.All) && heard.Problem == "" {
		heard.Problem = "some nodes are of another release, and answered in another form"
	}
	return merged, heard, nil
}
