package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/regiongrpc"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/internal/server/fanout"
)

// regionCounters are the counters of this region, for operators of other regions.
type regionCounters struct {
	region *region.Store
	outer  headgate.Store // wraps region
}

func (c regionCounters) Usage(ctx context.Context, ref region.CounterRef) (region.Usage, error) {
	return c.region.Usage(ctx, ref)
}

func (c regionCounters) Credit(ctx context.Context, ref region.CounterRef, units int64) (int64, error) {
	return c.region.Credit(ctx, c.outer, ref, units)
}

// regionQuery queries the servers of this region about other regions.
type regionQuery struct{}

// regionResult is the reply of a server, or of all.
type regionResult struct {
	fanout.Header
	Nodes     []string                   `json:"names"`
	Loans     adminapi.RegionLoans       `json:"loans"`
	Unreached []adminapi.RegionUnreached `json:"unreached"`
}

// regionResult returns the reply of this server.
func (s *server) regionResult(regionQuery) regionResult {
	stats, name := s.regions.store.Stats(), s.nodeName()
	r := regionResult{
		Header: fanout.Header{Version: 1, Nodes: 1}, Nodes: []string{name},
		Loans: adminapi.RegionLoans{
			Lent: stats.Lent, Borrowed: stats.Borrowed, Lost: stats.Lost,
			Requests: stats.Requests, Unanswered: stats.Unanswered, Skipped: stats.Skipped, Rejected: stats.Rejected,
		},
	}
	for _, p := range s.regions.network.State() {
		if !p.Up {
			r.Unreached = append(r.Unreached, adminapi.RegionUnreached{Node: name, Region: p.Peer, Problem: p.Problem})
		}
	}
	return r
}

// mergeRegions adds up the replies of servers.
func mergeRegions(_ regionQuery, all []regionResult) regionResult {
	sum := regionResult{Loans: adminapi.RegionLoans{Rejected: map[string]int64{}}}
	for _, r := range all {
		sum.Nodes, sum.Unreached = append(sum.Nodes, r.Nodes...), append(sum.Unreached, r.Unreached...)
		to, from := &sum.Loans, &r.Loans
		to.Lent, to.Borrowed, to.Lost = to.Lent+from.Lent, to.Borrowed+from.Borrowed, to.Lost+from.Lost
		to.Requests, to.Unanswered, to.Skipped = to.Requests+from.Requests, to.Unanswered+from.Unanswered, to.Skipped+from.Skipped
		for reason, n := range from.Rejected {
			to.Rejected[reason] += n
		}
	}
	return sum
}

// regionAdmin shows operators all regions, and gives units back in all of them.
type regionAdmin struct {
	*server
	servers *fanout.Topic[regionQuery, regionResult]
}

// Status implements [adminapi.Regions].
func (a *regionAdmin) Status(ctx context.Context) (adminapi.RegionsStatus, error) {
	all, coverage, err := a.servers.Query(ctx, regionQuery{})
	if err != nil {
		return adminapi.RegionsStatus{}, err
	}
	status := adminapi.RegionsStatus{
		At: time.Now().UTC(), Region: a.config.Regions.Name, Coverage: coverage, Missing: []string{}, Loans: all.Loans,
		Members: a.members(), Unreached: []adminapi.RegionUnreached{},
	}
	if coverage.Replied < coverage.Nodes {
		status.Missing = a.missing(ctx, all.Nodes)
	}
	up := map[string]bool{}
	for i := range status.Members {
		up[status.Members[i].Name] = status.Members[i].Up
	}
	for _, u := range all.Unreached {
		if up[u.Region] {
			status.Unreached = append(status.Unreached, u)
		}
	}
	return status, nil
}

// missing returns the names of the servers of this region that are announced in Redis, without those that responded.
func (a *regionAdmin) missing(ctx context.Context, responded []string) []string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	names, err := a.redis.NodeNames(ctx)
	if err != nil {
		return []string{}
	}
	for _, name := range responded {
		if i := slices.Index(names, name); i >= 0 {
			names = slices.Delete(names, i, i+1)
		}
	}
	return append([]string{}, names...)
}

// members returns all regions as this server sees them.
func (a *regionAdmin) members() []adminapi.RegionMember {
	c := &a.config.Regions
	states := map[string]regiongrpc.State{}
	for _, s := range a.regions.network.State() {
		states[s.Peer] = s
	}
	weights, total := a.weightsOf()
	all := make([]adminapi.RegionMember, 0, len(c.Members))
	for _, m := range c.Members {
		one := adminapi.RegionMember{
			Name: m.Name, Address: m.Address, Weight: weights[m.Name], Share: 100 * float64(weights[m.Name]) / float64(max(1, total)),
		}
		if s, peer := states[m.Name]; peer {
			describePeer(&one, &s)
		} else {
			one.Own, one.Up, one.Version, one.SameMembers = true, true, a.Version, new(true)
		}
		all = append(all, one)
	}
	return all
}

// weightsOf returns the newest weights of the regions, and their sum.
func (a *regionAdmin) weightsOf() (weights map[string]int64, total int64) {
	weights = map[string]int64{}
	for _, r := range a.regions.weights.State().Regions {
		weights[r.Name] = r.Weight
		total += r.Weight
	}
	return weights, total
}

// describePeer adds what this server knows about another region.
func describePeer(m *adminapi.RegionMember, s *regiongrpc.State) {
	m.Up, m.Version, m.Problem = s.Up, s.Version, s.Problem
	if s.LastContact.IsZero() {
		m.Problem = cmp.Or(m.Problem, "has not responded yet")
		return
	}
	m.LastContact, m.RTT, m.SameMembers = new(s.LastContact.UTC()), new(s.RTT.Seconds()), new(!s.OtherMembers)
	if s.ClockKnown {
		m.ClockAhead = new(s.ClockAhead.Seconds())
	}
}

// Usage implements [adminapi.Regions].
func (a *regionAdmin) Usage(ctx context.Context, l *headgate.LimitDecision) *explain.Regions {
	ref := refOf(l)
	own := make(chan regiongrpc.Reply, 1)
	go func() {
		u, err := a.regions.store.Usage(ctx, ref)
		own <- regiongrpc.Reply{Region: a.config.Regions.Name, Usage: u, Err: err}
	}()
	found := &explain.Regions{Limit: l.Limit.Capacity(), Complete: true}
	replies := append(a.regions.network.Usage(ctx, ref), <-own)
	slices.SortFunc(replies, func(x, y regiongrpc.Reply) int { return cmp.Compare(x.Region, y.Region) })
	weights, _ := a.weightsOf()
	for i := range replies {
		r := &replies[i]
		share := a.regions.shares.ShareOf(r.Region, ref.Subject, &ref.Whole)
		u := explain.RegionUsage{Name: r.Region, Own: r.Region == a.config.Regions.Name, Weight: weights[r.Region], Share: share.Capacity()}
		switch {
		case r.Err != nil && u.Own:
			u.Problem = "its Redis is unavailable"
		case r.Err != nil:
			u.Problem = r.Err.Error()
		default:
			u.Share, u.Used, u.Remaining, u.Lent = r.Usage.Capacity, new(r.Usage.Used()), new(r.Usage.Remaining), new(r.Usage.Lent)
		}
		found.Add(u)
	}
	return found
}

// home returns the home of a subject. Its problem is set for each region but this one, since the caller knows whether it has decided.
func (a *regionAdmin) home(subject headgate.Subject) explain.Home {
	h := explain.Home{Name: a.regions.shares.Home(subject)}
	h.Own = h.Name == a.config.Regions.Name
	for _, s := range a.regions.network.State() {
		if s.Peer == h.Name {
			h.Problem = homeProblem(&s)
		}
	}
	return h
}

// homeProblem returns why a region has not decided, as far as its state shows.
func homeProblem(s *regiongrpc.State) string {
	switch {
	case s.Up:
		return "did not decide: " + cmp.Or(s.Problem, "it did not respond in time, or its Redis is unavailable")
	case s.Problem == "":
		return "has not responded yet"
	}
	return "does not respond: " + s.Problem
}

func refOf(l *headgate.LimitDecision) region.CounterRef {
	return region.CounterRef{Subject: l.Subject, Counter: l.Counter, Whole: l.Limit}
}

// Credit implements [adminapi.Regions].
func (a *regionAdmin) Credit(ctx context.Context, l *headgate.LimitDecision, units int64) (problems []adminapi.RegionProblem) {
	ref, credits := refOf(l), map[string]int64{}
	if units == 0 {
		a.regions.store.ForgetLent(ctx, ref)
		for _, m := range a.config.Regions.Members {
			credits[m.Name] = headgate.MaxCost
		}
	} else {
		credits, problems = divideCredit(a.regions.network.Usage(ctx, ref), units)
	}
	if len(credits) == 0 {
		return problems
	}
	next := "it is unknown whether it gave back units: check the usage before you grant more"
	if units == 0 {
		next = "repeat the reset when it responds"
	}
	for _, r := range a.regions.network.Credit(ctx, ref, credits) {
		if r.Err != nil {
			problems = append(problems, adminapi.RegionProblem{Region: r.Region, Problem: r.Err.Error() + "; " + next})
		}
	}
	slices.SortFunc(problems, func(x, y adminapi.RegionProblem) int { return cmp.Compare(x.Region, y.Region) })
	return problems
}

// divideCredit divides units among the regions that have used some, beginning with the one that has used the most. A region that does not
// respond gets none, which matters only if the others have not used enough.
func divideCredit(used []regiongrpc.Reply, units int64) (credits map[string]int64, problems []adminapi.RegionProblem) {
	credits = map[string]int64{}
	slices.SortStableFunc(used, func(x, y regiongrpc.Reply) int { return cmp.Compare(y.Usage.Used(), x.Usage.Used()) })
	for i := range used {
		if n := min(units, used[i].Usage.Used()); used[i].Err == nil && n > 0 {
			credits[used[i].Region] = n
			units -= n
		}
	}
	for i := range used {
		if used[i].Err != nil && units > 0 {
			problems = append(problems, adminapi.RegionProblem{Region: used[i].Region, Problem: used[i].Err.Error() + "; it gave back nothing: grant the rest when it responds"})
		}
	}
	return credits, problems
}
