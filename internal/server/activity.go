package server

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/server/offenders"
	"github.com/headgate/headgate/internal/server/tracing"
)

// activity contains the recent decisions of this node, and queries all nodes.
type activity struct {
	offenders *offenders.Offenders
	denials   *denials.Log
	nodes     *fanout.Node
	top       *fanout.Topic[offenders.Query, offenders.Result]
	denied    *fanout.Topic[denials.Query, denials.Result]
	release   *fanout.Topic[adminapi.ReleaseQuery, adminapi.ReleaseResult]
	regions   *fanout.Topic[regionQuery, regionResult] // nil if there is only one
}

// newActivity returns the activity of a server whose limiter and store are open. Without Redis there is one node.
func newActivity(s *server) *activity {
	showClear := s.config.ShowSubjects == config.ShowClear
	o := fanout.Options{Node: s.nodeName(), Log: s.Log, Nodes: func() int { return 1 }}
	if s.redis != nil {
		// Not the number that the last decision reported: a node that makes no decisions would not learn of the others.
		o.Bus, o.Nodes = s.redis, s.redis.Nodes
	}
	a := &activity{
		offenders: offenders.New(offenders.Options{Rules: s.limiter.Rules, Clear: showClear}),
		denials: denials.New(denials.Options{
			Rules: s.limiter.Rules, Clear: showClear, Node: s.nodeName(), TraceID: tracing.TraceID, Log: s.Log,
		}),
		nodes: fanout.New(o),
	}
	s.metrics.DenialsUnrecorded(a.denials.Unrecorded)
	a.top = fanout.NewTopic(a.nodes, "top", a.offenders.Result, offenders.Merge)
	a.denied = fanout.NewTopic(a.nodes, "denials", a.denials.Result, denials.Merge)
	a.release = fanout.NewTopic(a.nodes, "release", adminapi.ReleaseOwn(s.limiter), adminapi.MergeReleases)
	if s.regions != nil {
		a.regions = fanout.NewTopic(a.nodes, "regions", s.regionResult, mergeRegions)
	}
	return a
}

// Observe records a decision.
func (a *activity) Observe(ctx context.Context, o *headgate.Observation) {
	a.offenders.Observe(o)
	a.denials.Observe(ctx, o)
}
