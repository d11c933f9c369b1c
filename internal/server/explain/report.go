// Package explain builds the report on whether a request would be denied now, by which rule, and why. The command line
// and the admin API share it, so that their reports agree.
//
// It knows the report's wording, as JSON and as one screen of text. It does no I/O: the caller passes the Explanation
// of a Limiter.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
)

// Version is the version of the report's JSON. It changes when a key is renamed, removed or changes its meaning, not
// when a key is added.
const Version = 1

// maxNotApplied is how many rules that do not apply are shown, unless all are requested.
const maxNotApplied = 10

// Question describes the request to explain. Its JSON is the request body of the admin API.
type Question struct {
	// Attributes are the request's attributes, as package identity derives them.
	Attributes headgate.Attributes `json:"attributes"`
	// Cost multiplies the request's cost by the rules; 0 means 1.
	Cost int64 `json:"cost"`
	// All lists all rules that do not apply, instead of the first 10.
	All bool `json:"all"`
}

// Place is where the rules and counters are stored.
type Place struct {
	// RulesFrom are the files and directories of the rules.
	RulesFrom []string
	// Regions is the usage of shared limits in all regions, by the index of the decision's limits; nil if there is only one region.
	Regions map[int]*Regions
	// Home returns the home of a limit's subject; nil if the rule counts without homes. Home itself is nil if there is only one region.
	Home func(*headgate.LimitDecision) *Home
	// Redis is the address of Redis without the password, and Key returns the key of a subject. They are empty without Redis.
	Redis string
	Key   func(headgate.Subject) string
}

// Report explains one request. New makes it, and Text formats it for a terminal.
type Report struct {
	Version int  `json:"version"`
	Allowed bool `json:"allowed"`
	// RetryAfter is 0 if the request is allowed, and null if it can never be allowed.
	RetryAfter *float64 `json:"retry_after"`
	// Delay is how long a leaky bucket would delay the request.
	Delay   float64 `json:"delay"`
	Summary string  `json:"summary"`
	// Request has the attributes as a server would derive them.
	Request headgate.Attributes `json:"request"`
	Cost    int64               `json:"cost"`
	// Server is the server that made the report; empty if the command read the rules and Redis itself.
	Server       string   `json:"server,omitempty"`
	Rules        []string `json:"rules_from"`
	RulesVersion string   `json:"rules_version"`
	// Redis is empty if none is configured: a server then counts in its memory, and without a server all counters are
	// assumed unused. Time is the time of the counters' clock; it is zero if no counter was read.
	Redis string    `json:"redis"`
	Time  time.Time `json:"time,omitzero"`
	// RedisUnavailable is true if the Redis of this region did not decide some of the limits. Their DecidedBy is local or failed. It is
	// false if only homes in other regions did not decide.
	RedisUnavailable bool `json:"redis_unavailable"`
	// Limits are all limits that apply, denying limits first.
	Limits []Limit  `json:"limits"`
	Notes  []string `json:"notes"`
	// NotApplied are rules that do not apply, and NotShown is how many more of them were left out.
	NotApplied []OtherRule `json:"not_applied"`
	NotShown   int         `json:"not_shown"`
}

// Limit is a limit that applies to the request.
type Limit struct {
	Rule  string `json:"rule"`
	Name  string `json:"name"` // empty if the rule has a single limit
	Limit string `json:"limit"`
	// Origin is rule, tier, override or candidate.
	Origin    string `json:"origin"`
	Algorithm string `json:"algorithm"`
	// CountedBy is empty if one counter counts all requests. An attribute that the request lacks has an empty value.
	CountedBy headgate.Attributes `json:"counted_by"`
	// Missing is the attribute that the request lacks, if the rule denies it for that reason, without counting it.
	Missing string `json:"missing,omitempty"`
	Cost    int64  `json:"cost"`
	// DecidedBy is the source of the numbers: store, lease, cache, local, failed or rules, as in a decision. If it is local,
	// Remaining, ResetAfter and RetryAfter are those of this node's local fallback share. If it is failed, on_store_failure
	// decided, and they are unknown.
	DecidedBy string `json:"decided_by"`
	// Capacity is the largest cost that can be used at once, and Used is Capacity - Remaining. For a leaky bucket Remaining
	// is the free space in its queue, and Used is 0. Used is also 0 if Redis is unavailable, since the usage of all nodes
	// is unknown then.
	Capacity  int64 `json:"capacity"`
	Used      int64 `json:"used"`
	Remaining int64 `json:"remaining"`
	// ResetAfter of a concurrency limit is when the last lease of its units ends, unless it is renewed.
	ResetAfter float64  `json:"reset_after"`
	RetryAfter *float64 `json:"retry_after"` // null if the request can never be allowed
	Allowed    bool     `json:"allowed"`
	Enforced   bool     `json:"enforced"` // false in shadow mode and for candidates
	Verdict    string   `json:"verdict"`
	// Regions is the usage in all regions if the limit is shared by regions; Capacity, Used and Remaining are those of this region's share.
	Regions *Regions `json:"regions,omitempty"`
	// Home is the region that counts the subject, if the rule has regions: home.
	Home *Home `json:"home,omitempty"`
	// Holders are the nodes on which the units of a concurrency limit are in use, those with most units first.
	Holders []Holder `json:"holders,omitempty"`
	// Key is the counter's key in Redis, and Field its hash field in hexadecimal. It is the Redis of the home, if there is one.
	Key   string `json:"key,omitempty"`
	Field string `json:"field,omitempty"`
}

// Holder is a node that has units of a concurrency limit.
type Holder struct {
	// ID is what the admin API needs to release the units.
	ID string `json:"id"`
	// Node is empty if no such node is known: it was killed, or counts in the memory of this server.
	Node  string    `json:"node"`
	Units int64     `json:"units"`
	Until time.Time `json:"until"` // when the units expire, unless the node renews them
}

// OtherRule is a rule that does not apply to the request.
type OtherRule struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// New returns the report on a Limiter's explanation. The given notes are about the question, and come first.
func New(e *headgate.Explanation, q Question, p Place, notes ...string) *Report {
	d := &e.Decision
	r := &Report{
		Version: Version, Allowed: d.Allowed, RetryAfter: seconds(d.RetryAfter), Delay: d.Delay.Seconds(),
		Request: q.Attributes, Cost: max(q.Cost, 1),
		Rules: append([]string{}, p.RulesFrom...), RulesVersion: d.Version, Redis: p.Redis, Time: d.Time,
		Limits: []Limit{}, Notes: append([]string{}, notes...), NotApplied: []OtherRule{},
	}
	by := r.addRules(e.Rules)
	if n := len(r.NotApplied); n > maxNotApplied && !q.All {
		r.NotApplied, r.NotShown = r.NotApplied[:maxNotApplied], n-maxNotApplied
	}
	if d.Path == headgate.PathRules {
		r.Notes = append(r.Notes, "denied before counting: other limits were not checked")
	}
	for i := range d.Limits {
		l := newLimit(&d.Limits[i])
		if l.CountedBy = by[l.Rule]; p.Key != nil {
			l.Key, l.Field = p.Key(d.Limits[i].Subject), fmt.Sprintf("%012x", uint64(d.Limits[i].Counter))
		}
		l.Regions = p.Regions[i]
		if p.Home != nil {
			l.Home = p.Home(&d.Limits[i])
		}
		r.RedisUnavailable = r.RedisUnavailable || l.withoutRedis() && l.homeElsewhere() == ""
		if i < len(e.Holders) {
			for _, h := range e.Holders[i] {
				l.Holders = append(l.Holders, Holder{fmt.Sprintf("%016x", h.ID), h.Node, h.Units, h.Until.UTC()})
			}
		}
		r.Limits = append(r.Limits, l)
		for _, note := range []string{skippedNote(&d.Limits[i], q.Attributes), homeNote(&l), shareNote(&d.Limits[i], l.Regions)} {
			if note != "" && !slices.Contains(r.Notes, note) {
				r.Notes = append(r.Notes, note)
			}
		}
	}
	slices.SortStableFunc(r.Limits, func(a, b Limit) int { return a.rank() - b.rank() })
	r.Summary = r.summarise(d)
	return r
}

// skippedNote returns a note on the requests that a concurrency limit is not applied to, or "" for other limits.
func skippedNote(l *headgate.LimitDecision, request headgate.Attributes) string {
	switch {
	case l.Limit.Algorithm != headgate.Concurrency:
		return ""
	case request["domain"] != "" || request["entries"] != "": // Envoy sends them
		return l.Rule + ": not applied to requests that Envoy asks about, since it does not report their end: apply the limit in the program behind it"
	}
	return l.Rule + ": applied only where the end of a request is reported: by package client, checks with begin, and the library; " +
		"skipped for forward-auth, Envoy and other checks (headgate_limits_skipped_total)"
}

// addRules adds the rules that do not apply and the notes on the others, which it returns with the attributes that they count by.
func (r *Report) addRules(rules []headgate.RuleExplanation) map[string]headgate.Attributes {
	by := map[string]headgate.Attributes{}
	var otherPaths []OtherRule
	for _, rule := range rules {
		switch id := rule.Rule.ID; {
		case !rule.Applies && strings.HasPrefix(rule.Why, "path is "):
			otherPaths = append(otherPaths, OtherRule{id, rule.Why}) // last: they are the least relevant to this request
		case !rule.Applies:
			r.NotApplied = append(r.NotApplied, OtherRule{id, rule.Why})
		case rule.Why != "":
			r.Notes = append(r.Notes, id+": "+rule.Why)
			fallthrough
		default:
			by[cmp.Or(rule.Rule.Counter, id)] = rule.Subject
		}
	}
	r.NotApplied = append(r.NotApplied, otherPaths...)
	return by
}

func newLimit(l *headgate.LimitDecision) Limit {
	r := Limit{
		Rule: l.Rule, Name: l.Name, Limit: l.Limit.String(), Origin: l.Origin.String(),
		Algorithm: l.Limit.Algorithm.String(), Missing: l.Missing, Cost: l.Cost,
		Capacity: l.Limit.Capacity(), Remaining: l.Remaining,
		ResetAfter: l.ResetAfter.Seconds(), RetryAfter: seconds(l.RetryAfter),
		Allowed: l.Allowed, Enforced: l.Enforced, Verdict: verdict(l), DecidedBy: string(l.DecidedBy()),
	}
	if l.Shared {
		r.Capacity = l.Share
	}
	if l.Missing == "" && l.Limit.Algorithm != headgate.LeakyBucket && !r.withoutRedis() {
		r.Used = r.Capacity - r.Remaining
	}
	return r
}

// withoutRedis reports whether the limit was decided without the shared counter, since Redis or the home is unavailable.
func (l *Limit) withoutRedis() bool {
	return l.DecidedBy == string(headgate.PathLocal) || l.DecidedBy == string(headgate.PathFailed)
}

// rank orders limits: enforced limits that deny, other limits that deny, the rest.
func (l *Limit) rank() int {
	return slices.Index([]bool{l.Enforced && !l.Allowed, !l.Allowed, true}, true)
}

// seconds returns a duration in seconds, and nil for headgate.Never and headgate.Unknown.
func seconds(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	return new(d.Seconds())
}

// UnusedAttributes returns a note on the attributes that neither the rules nor the exemptions use. The exemptions use the
// attributes in exempt. It returns "" if all are used.
func UnusedAttributes(names []string, rules *headgate.RuleSet, exempt ...string) string {
	used := slices.Concat(exempt, rules.Attributes())
	if slices.Contains(used, "client") {
		used = append(used, "api_key", "user", "ip")
	}
	unused := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(used, name) })
	if len(unused) == 0 {
		return ""
	}
	return "no rule uses " + wording.List(unused)
}
