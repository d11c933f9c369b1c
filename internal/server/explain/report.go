// Package explain makes the report that says whether a request would be denied now, by which rule, and why. The
// command line and the admin API make it here, so that they say the same.
//
// It knows how a report is worded, as JSON and as one screen of text. It asks nobody: whoever calls it has asked a
// Limiter already.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
)

// Version of the report's JSON. It changes when a key is renamed or removed or means something else, not when one is
// added.
const Version = 1

// mostOthers is how many rules that do not apply are shown.
const mostOthers = 10

// Question is what is asked. Its JSON is what the admin API takes.
type Question struct {
	// Attributes are as package identity makes them.
	Attributes headgate.Attributes `json:"attributes"`
	// Cost multiplies what the rules say the request costs; 0 means 1.
	Cost int64 `json:"cost"`
	// All asks for all rules that do not apply, instead of the first few.
	All bool `json:"all"`
}

// Place says where rules and counters are.
type Place struct {
	// RulesFrom are files and directories.
	RulesFrom []string
	// Redis is its address without password, and Key where a subject is in it. They are empty without Redis.
	Redis string
	Key   func(headgate.Subject) string
}

// Report is the answer.
type Report struct {
	Version int  `json:"version"`
	Allowed bool `json:"allowed"`
	// RetryAfter is 0 if the request may pass, null if it never can.
	RetryAfter *float64 `json:"retry_after"`
	// Delay is how long a leaky bucket would hold the request.
	Delay   float64 `json:"delay"`
	Summary string  `json:"summary"`
	// Request is the attributes as a server would read them.
	Request headgate.Attributes `json:"request"`
	Cost    int64               `json:"cost"`
	// Server is that which was asked; empty if the rules and Redis were.
	Server       string   `json:"server,omitempty"`
	Rules        []string `json:"rules_from"`
	RulesVersion string   `json:"rules_version"`
	// Redis is empty if there is none: a server then counts in its memory, and without a server all counters are taken as
	// never used. Time is by the counters' clock, if any were asked.
	Redis string    `json:"redis"`
	Time  time.Time `json:"time,omitzero"`
	// RedisUnavailable says that Redis did not answer for some of the limits; their DecidedBy tells which.
	RedisUnavailable bool `json:"redis_unavailable"`
	// Limits are all that apply, the denying ones first.
	Limits []Limit  `json:"limits"`
	Notes  []string `json:"notes"`
	// NotApplied are rules that do not apply, and NotShown is how many more there are.
	NotApplied []OtherRule `json:"not_applied"`
	NotShown   int         `json:"not_shown"`
}

// Limit is one that applies.
type Limit struct {
	Rule  string `json:"rule"`
	Name  string `json:"name"` // empty if the rule has one limit only
	Limit string `json:"limit"`
	// Origin is rule, tier, override or candidate.
	Origin    string `json:"origin"`
	Algorithm string `json:"algorithm"`
	// CountedBy is empty if everybody is counted together; what the request lacks is empty in it.
	CountedBy headgate.Attributes `json:"counted_by"`
	// Missing is the attribute for whose lack the rule denies the request, without counting it.
	Missing string `json:"missing,omitempty"`
	Cost    int64  `json:"cost"`
	// DecidedBy tells whose numbers these are: store, lease, cache, local, failed or rules, as in a decision. If it is local,
	// Remaining, ResetAfter and RetryAfter are of this node's local fallback share; if it is failed, on_store_failure decided and
	// they are not known.
	DecidedBy string `json:"decided_by"`
	// Capacity is the most that can be used at once, and Used what is not Remaining of it. Of a leaky bucket Remaining is
	// the room in its queue, and Used 0; it is also 0 if Redis did not answer, since nobody knows then what all nodes have used.
	Capacity   int64    `json:"capacity"`
	Used       int64    `json:"used"`
	Remaining  int64    `json:"remaining"`
	ResetAfter float64  `json:"reset_after"`
	RetryAfter *float64 `json:"retry_after"` // null if the request can never pass
	Allowed    bool     `json:"allowed"`
	Enforced   bool     `json:"enforced"` // false in shadow and on trial
	Verdict    string   `json:"verdict"`
	// Key and Field, in hexadecimal, are where the counter is in Redis.
	Key   string `json:"key,omitempty"`
	Field string `json:"field,omitempty"`
}

// OtherRule is one that does not apply.
type OtherRule struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// New makes a report of what a Limiter said. notes are about the question, and come first.
func New(e *headgate.Explanation, q Question, p Place, notes ...string) *Report {
	d := &e.Decision
	r := &Report{
		Version: Version, Allowed: d.Allowed, RetryAfter: seconds(d.RetryAfter), Delay: d.Delay.Seconds(),
		Request: q.Attributes, Cost: max(q.Cost, 1),
		Rules: append([]string{}, p.RulesFrom...), RulesVersion: d.Version, Redis: p.Redis, Time: d.Time,
		Limits: []Limit{}, Notes: append([]string{}, notes...), NotApplied: []OtherRule{},
	}
	by := r.sort(e.Rules)
	if n := len(r.NotApplied); n > mostOthers && !q.All {
		r.NotApplied, r.NotShown = r.NotApplied[:mostOthers], n-mostOthers
	}
	if d.Path == headgate.PathRules {
		r.Notes = append(r.Notes, "it is denied before anything is counted: other limits were not asked")
	}
	for i := range d.Limits {
		l := newLimit(&d.Limits[i])
		r.RedisUnavailable = r.RedisUnavailable || l.apart()
		if l.CountedBy = by[l.Rule]; p.Key != nil {
			l.Key, l.Field = p.Key(d.Limits[i].Subject), fmt.Sprintf("%012x", uint64(d.Limits[i].Counter))
		}
		r.Limits = append(r.Limits, l)
	}
	slices.SortStableFunc(r.Limits, func(a, b Limit) int { return a.rank() - b.rank() })
	r.Summary = r.summarise(d)
	return r
}

// sort tells the rules that do not apply from those that do, and returns what each of these counts by.
func (r *Report) sort(rules []headgate.RuleExplanation) map[string]headgate.Attributes {
	by := map[string]headgate.Attributes{}
	var elsewhere []OtherRule
	for _, rule := range rules {
		switch id := rule.Rule.ID; {
		case !rule.Applies && strings.HasPrefix(rule.Why, "path is "):
			elsewhere = append(elsewhere, OtherRule{id, rule.Why}) // last: they say the least about this request
		case !rule.Applies:
			r.NotApplied = append(r.NotApplied, OtherRule{id, rule.Why})
		case rule.Why != "":
			r.Notes = append(r.Notes, id+": "+rule.Why)
			fallthrough
		default:
			by[id] = rule.Subject
		}
	}
	r.NotApplied = append(r.NotApplied, elsewhere...)
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
	if l.Missing == "" && l.Limit.Algorithm != headgate.LeakyBucket && !r.apart() {
		r.Used = r.Capacity - r.Remaining
	}
	return r
}

// apart reports whether the limit was decided without the shared counter, since Redis did not answer.
func (l *Limit) apart() bool {
	return l.DecidedBy == string(headgate.PathLocal) || l.DecidedBy == string(headgate.PathFailed)
}

// rank puts what denies first.
func (l *Limit) rank() int {
	return slices.Index([]bool{l.Enforced && !l.Allowed, !l.Allowed, true}, true)
}

// seconds is nil for never.
func seconds(d time.Duration) *float64 {
	if d == headgate.Never {
		return nil
	}
	return new(d.Seconds())
}

// Idle is a note that names the attributes at which nobody looks: neither the rules nor exemptions, which are by those
// given last. It is empty if there are none.
func Idle(names []string, rules *headgate.RuleSet, exempt ...string) string {
	looksAt := slices.Concat(exempt, rules.Attributes())
	if slices.Contains(looksAt, "client") {
		looksAt = append(looksAt, "api_key", "user", "ip")
	}
	idle := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(looksAt, name) })
	if len(idle) == 0 {
		return ""
	}
	return "no rule looks at " + wording.List(idle)
}
