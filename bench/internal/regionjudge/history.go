// Package regionjudge decides from the merged history of several regions whether they kept the limits that they share, and how much of
// them was of use. It knows requests, decisions and limits. It knows nothing of how regions share a limit.
package regionjudge

import (
	"slices"

	"github.com/headgate/headgate"
)

// Paths of decisions, as in the API, that the judge distinguishes.
const (
	pathStore = string(headgate.PathStore)
	pathLocal = string(headgate.PathLocal)
)

// Rule is a limit that all regions share.
type Rule struct {
	ID string
	// Limit is that of all regions together.
	Limit headgate.Limit
	// Strict excludes leases, which let a bucket admit a little more; see docs/adr/0009-ahead-of-the-store.md.
	Strict bool
}

// leased is which fraction of its burst a bucket may admit in addition, because of leases.
const leased = 0.05

// Record is one request and its response. Times are microseconds since 1970 on the clock of the machine, which all regions share.
type Record struct {
	Region        string
	Node          int
	Rule, Subject string
	Sent          int64 // before the request was sent
	Received      int64 // after the response arrived
	Cost          int64
	Allowed       bool
	Path          string // of the decision; empty if there was no response
	Remaining     int64
	// Store is the time of the decision and Reset the end of its window, both on the clock of the region's store; 0 if unknown.
	Store, Reset int64
}

// decided reports whether there was a response.
func (r *Record) decided() bool { return r.Path != "" }

// Loss is a store that lost its counters at a time in between: it was killed at From, and a store answered again at To.
type Loss struct {
	Region   string
	From, To int64
}

// History is all that happened.
type History struct {
	// Regions are in the order of their fractions of a limit, which are equal.
	Regions []string
	// Nodes is how many servers each region has.
	Nodes int64
	Rules []Rule
	// Skew is how many microseconds a region's store is ahead.
	Skew    map[string]int64
	Losses  []Loss
	Records []Record
}

// span returns the earliest and the latest time at which a request was decided. Store decisions have the store's time, if that is
// plausible; all others were made between request and response.
func (h *History) span(r *Record) (from, to int64) {
	if r.Path == pathStore && r.Store > 0 {
		if at := r.Store - h.Skew[r.Region]; at >= r.Sent && at <= r.Received {
			return at, at
		}
	}
	return r.Sent, r.Received
}

// subjects returns the records of a rule by subject.
func (h *History) subjects(rule string) (names []string, records map[string][]*Record) {
	records = map[string][]*Record{}
	for i := range h.Records {
		if r := &h.Records[i]; r.Rule == rule {
			records[r.Subject] = append(records[r.Subject], r)
		}
	}
	for name := range records {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, records
}

// share returns a region's share of a limit.
func (h *History) share(region string, limit headgate.Limit) headgate.Limit {
	i := int64(slices.Index(h.Regions, region))
	return headgate.Fraction{From: i, To: i + 1, Of: int64(len(h.Regions))}.Share(limit)
}
