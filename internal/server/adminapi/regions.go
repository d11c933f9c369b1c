package adminapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/internal/server/fanout"
)

// RegionsPath is the path of the state of regions.
const RegionsPath = "/v1/regions"

// Regions is what the regions of an installation know together.
type Regions interface {
	// Status returns the state of all regions as this one sees them.
	Status(ctx context.Context) (RegionsStatus, error)
	// Usage returns the usage of a shared limit in all regions.
	Usage(ctx context.Context, limit *headgate.LimitDecision) *explain.Regions
	// Credit gives back units of a shared limit in other regions, after this one has given back some: all units if units is 0, otherwise
	// as many as are still to be given back. It returns the regions that may not have done so.
	Credit(ctx context.Context, limit *headgate.LimitDecision, units int64) []RegionProblem
}

// RegionsStatus is the state of all regions as one of them sees them.
type RegionsStatus struct {
	At time.Time `json:"at"`
	// Region is the region of the server that responds.
	Region string `json:"region"`
	// Coverage is how many servers of this region have responded, of which Missing did not, as far as their names are known.
	fanout.Coverage
	Missing []string       `json:"missing"`
	Members []RegionMember `json:"members"`
	Loans   RegionLoans    `json:"loans"`
	// Unreached are the regions that servers of this region do not reach, although the one that responds does.
	Unreached []RegionUnreached `json:"unreached"`
	// Weights are the newest weights, and who has acknowledged them.
	Weights *RegionWeights `json:"weights,omitempty"`
}

// RegionMember is a region. Null values are unknown.
type RegionMember struct {
	Name    string `json:"name"`
	Own     bool   `json:"own"`
	Address string `json:"address"`
	Weight  int64  `json:"weight"`
	// Share is the region's part of shared limits in percent.
	Share float64 `json:"sharePercent"`
	// Up is whether the region responds to the server.
	Up          bool       `json:"up"`
	RTT         *float64   `json:"rttSeconds"`
	LastContact *time.Time `json:"lastContact"`
	// ClockAhead is by how much the clock of its Redis is ahead of that of this region.
	ClockAhead *float64 `json:"clockAheadSeconds"`
	Version    string   `json:"version"`
	// SameMembers is whether it has the same members and weights.
	SameMembers *bool `json:"sameMembers"`
	// Problem is why it does not respond, or lends nothing.
	Problem string `json:"problem,omitempty"`
}

// RegionLoans is what servers have lent and borrowed since they started.
type RegionLoans struct {
	Lent     int64 `json:"lentUnits"`
	Borrowed int64 `json:"borrowedUnits"`
	Lost     int64 `json:"lostUnits"`
	// Requests are the loan requests that were sent, of which Unanswered got no response in time; Skipped were not sent.
	Requests   int64 `json:"requests"`
	Unanswered int64 `json:"unansweredRequests"`
	Skipped    int64 `json:"skippedRequests"`
	// Rejected are the loan requests of other regions to which nothing was lent, by reason.
	Rejected map[string]int64 `json:"rejectedRequests"`
}

// RegionUnreached is a region that a server does not reach.
type RegionUnreached struct {
	Node    string `json:"node"`
	Region  string `json:"region"`
	Problem string `json:"problem"`
}

// RegionProblem is why a region may not have done what an operator requested.
type RegionProblem struct {
	Region  string `json:"region"`
	Problem string `json:"problem"`
}

// noRegions returns the problem of a server without other regions.
func noRegions() *problem {
	return newProblem(http.StatusNotImplemented, "this server has no other regions: write regions with name, members and tls in its config, "+
		"as docs/config.md#regions describes, and restart it")
}

// listRegions returns the state of the regions.
func (a *api) listRegions(c *call) (any, error) {
	if a.Regions == nil {
		return nil, noRegions()
	}
	if err := rejectUnknown(c.URL.Query()); err != nil {
		return nil, err
	}
	status, err := a.Regions.Status(c.Context())
	if err == nil && a.Weights != nil {
		weights := a.Weights.State()
		status.Weights = new(regionWeights(&weights))
	}
	return status, err
}

// addRegions adds the usage of shared limits in all regions to a result. set gets the index of a limit and its usage.
func (a *api) addRegions(ctx context.Context, limits []headgate.LimitDecision, set func(i int, r *explain.Regions)) {
	if a.Regions == nil {
		return
	}
	found := make([]*explain.Regions, len(limits))
	var reading sync.WaitGroup
	for i := range limits {
		if l := &limits[i]; l.Shared && l.Missing == "" {
			reading.Go(func() { found[i] = a.Regions.Usage(ctx, l) })
		}
	}
	reading.Wait()
	for i, r := range found {
		if r != nil {
			set(i, r)
		}
	}
}

// creditRegions gives back units of shared limits in other regions, after this one has given back some.
func (a *api) creditRegions(ctx context.Context, limits []headgate.LimitDecision, units int64) (problems []RegionProblem) {
	if a.Regions == nil {
		return nil
	}
	for i := range limits {
		l := &limits[i]
		if !l.Shared || l.Origin == headgate.FromCandidate {
			continue
		}
		rest := int64(0)
		if units > 0 {
			if rest = units - l.Granted; rest <= 0 {
				continue
			}
		}
		for _, p := range a.Regions.Credit(ctx, l, rest) {
			problems = addProblem(problems, p)
		}
	}
	return problems
}

// addProblem adds the first problem of each region.
func addProblem(all []RegionProblem, p RegionProblem) []RegionProblem {
	for i := range all {
		if all[i].Region == p.Region {
			return all
		}
	}
	return append(all, p)
}
