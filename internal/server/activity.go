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

// activity is what this node remembers of its decisions, and how all nodes are asked for it.
type activity struct {
	offenders *offenders.Offenders
	denials   *denials.Log
	nodes     *fanout.Node
	top       *fanout.Topic[offenders.Query, offenders.Answer]
	denied    *fanout.Topic[denials.Query, denials.Answer]
}

// newActivity makes it of a server whose limiter and store are there. Without Redis there is one node.
func newActivity(s *server) *activity {
	names := s.config.ShowSubjects == config.ShowClear
	o := fanout.Options{Node: s.nodeName(), Log: s.Log, Nodes: func() int { return 1 }}
	if s.redis != nil {
		// Not what the last decision has heard: whoever decides nothing would hear of nobody.
		o.Bus, o.Nodes = s.redis, s.redis.Nodes
	}
	a := &activity{
		offenders: offenders.New(offenders.Options{Rules: s.limiter.Rules, Clear: names}),
		denials: denials.New(denials.Options{
			Rules: s.limiter.Rules, Clear: names, Node: s.nodeName(), TraceID: tracing.TraceID, Log: s.Log,
		}),
		nodes: fanout.New(o),
	}
	s.metrics.DenialsUnrecorded(a.denials.Unrecorded)
	a.top = fanout.NewTopic(a.nodes, "top", a.offenders.Answer, offenders.Merge)
	a.denied = fanout.NewTopic(a.nodes, "denials", a.denials.Answer, denials.Merge)
	return a
}

// Note is told of every decision.
func (a *activity) Note(ctx context.Context, o *headgate.Observation) {
	a.offenders.Note(o)
	a.denials.Note(ctx, o)
}
