package server

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/server/offenders"
	"github.com/headgate/headgate/internal/server/tracing"
)

// seen is what this node remembers of its decisions, and how all nodes are asked for it.
type seen struct {
	offenders *offenders.Offenders
	denials   *denials.Log
	nodes     *fanout.Node
	top       *fanout.Topic[offenders.Query, offenders.Answer]
	denied    *fanout.Topic[denials.Query, denials.Answer]
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
		nodes: fanout.New(o),
	}
	s.metrics.DenialsUnrecorded(seen.denials.Unrecorded)
	seen.top = fanout.NewTopic(seen.nodes, "top", seen.offenders.Answer, offenders.Merge)
	seen.denied = fanout.NewTopic(seen.nodes, "denials", seen.denials.Answer, denials.Merge)
	return seen
}

// Note is told of every decision.
func (s *seen) Note(ctx context.Context, o *headgate.Observation) {
	s.offenders.Note(o)
	s.denials.Note(ctx, o)
}
