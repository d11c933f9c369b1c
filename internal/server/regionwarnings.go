package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
)

const (
	// minLentShare is the smallest share, in units, that regions lend and borrow from without denying many requests in between.
	minLentShare = 30
	// minRefill is how long the burst of a shared token bucket should take to refill, so that headgate.MaxTransfer leaves at least half of it.
	minRefill = 2 * headgate.MaxTransfer
	// smallShareRemedy is the remedy for limits with smaller shares.
	smallShareRemedy = "raise the limit, or write regions: home"
	// maxLoggedWarnings is how many warnings are logged for a version of the rules.
	maxLoggedWarnings = 20
)

// RegionWarning is a property of a rule that regions count together that is valid but probably unintended, given the regions and their weights.
type RegionWarning struct {
	Rule string
	// Limit is the limit with its name, tier and whether it is a candidate; "" if the warning is about the whole rule.
	Limit string
	// Denies is whether a region denies every request because of it.
	Denies bool
	// Problem describes the consequence and the remedy.
	Problem string
}

// String returns the warning for people.
func (w RegionWarning) String() string {
	if w.Limit == "" {
		return fmt.Sprintf("rule %q: %s", w.Rule, w.Problem)
	}
	return fmt.Sprintf("rule %q, %s: %s", w.Rule, w.Limit, w.Problem)
}

// RegionWarnings returns the warnings for rules that the servers of these regions apply.
func RegionWarnings(rules *headgate.RuleSet, regions *config.Regions) []RegionWarning {
	all := rules.Rules()
	var found []RegionWarning
	for i := range all {
		r := &all[i]
		if r.Regions == headgate.EachRegion || r.Mode == headgate.Off {
			continue
		}
		if len(regions.Members) == 0 {
			found = append(found, RegionWarning{Rule: r.ID, Problem: "regions: " + r.Regions.String() + ", but the config has no regions: " +
				"counted in this region only; add regions to the config, or write regions: each"})
			continue
		}
		if r.Regions == headgate.HomeRegion {
			continue
		}
		cost := maxCost(all, r)
		for _, l := range limitsOf(r) {
			w := RegionWarning{Rule: r.ID, Limit: l.what + " " + l.limit.String()}
			for _, problem := range l.problems(regions, cost) {
				w.Problem, w.Denies = problem.text, problem.denies
				found = append(found, w)
			}
		}
	}
	return found
}

// maxCost returns the highest cost that the config of a rule, or of a rule that charges its counters, gives to requests. It is 0 if
// requests may cost more than the limit.
func maxCost(all []headgate.Rule, charged *headgate.Rule) int64 {
	if charged.Overdraw {
		return 0
	}
	highest := int64(1)
	for i := range all {
		if r := &all[i]; r.ID == charged.ID || r.Counter == charged.ID && r.Mode != headgate.Off {
			highest = max(highest, r.Cost.Default, r.Cost.Min)
			for _, e := range r.Costs {
				highest = max(highest, e.Cost)
			}
		}
	}
	return highest
}

// sharedLimit is one of the limits of a shared rule.
type sharedLimit struct {
	what      string // "limit", "limit daily", "tier free, limit" or "candidate limit"
	limit     headgate.Limit
	candidate bool
}

// limitsOf returns all limits of a rule, those of tiers and the candidate included.
func limitsOf(r *headgate.Rule) []sharedLimit {
	var all []sharedLimit
	add := func(what string, p headgate.Plan, candidate bool) {
		if p.Limit != (headgate.Limit{}) {
			all = append(all, sharedLimit{what, p.Limit, candidate})
		}
		for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
			all = append(all, sharedLimit{what + " " + name, p.Limits[name], candidate})
		}
	}
	add("limit", headgate.Plan{Limit: r.Limit, Limits: r.Limits}, false)
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		add("tier "+tier+", limit", r.Tiers[tier], false)
	}
	add("candidate limit", r.Candidate, true)
	return all
}

type regionProblem struct {
	text   string
	denies bool
}

// problems returns what is wrong with the shares of a limit. cost is the highest cost of a request, 0 if it may exceed the limit.
func (l *sharedLimit) problems(regions *config.Regions, cost int64) (found []regionProblem) {
	var none []string // regions whose share has no units
	smallest, units := "", int64(0)
	for i, f := range regions.Fractions() {
		share, name := f.Share(l.limit), regions.Members[i].Name
		if share.Validate() != nil {
			none = append(none, name)
		} else if smallest == "" || share.Capacity() < units {
			smallest, units = name, share.Capacity()
		}
	}
	whole := l.limit.Capacity()
	bad := func(denies bool, format string, args ...any) {
		found = append(found, regionProblem{fmt.Sprintf(format, args...), denies})
	}
	if len(none) > 0 {
		have, denied := "region "+none[0]+" has", "is"
		if len(none) > 1 {
			have = "regions " + wording.List(none) + " have"
		}
		if l.candidate {
			denied = "would be"
		}
		bad(!l.candidate, "%s a share of 0 of %s units, so that every request %s denied there; %s", have, wording.Number(whole), denied, l.remedyForNone())
	}
	if smallest == "" {
		return found
	}
	size := fmt.Sprintf("region %s has a share of %s of %s units", smallest, wording.Number(units), wording.Number(whole))
	refill := refillTime(l.limit)
	switch instead, lent := l.lent(); {
	case len(none) > 0: // already reported
	case !lent:
		bad(false, "%s is split and not lent: %s, whatever the others use; %s", l.limit.Algorithm, size, instead)
	case l.limit.Algorithm == headgate.TokenBucket && refill < minRefill:
		bad(false, "its burst refills in %s, and shares leave out what refills in %s: %s; raise the burst", refill, headgate.MaxTransfer, size)
	case units < minLentShare:
		bad(false, "%s, which is too small to lend and borrow; %s", size, smallShareRemedy)
	}
	if cost > units && !l.candidate && l.limit.Algorithm != headgate.LeakyBucket {
		bad(false, "%s: requests with a cost of %s are always denied there; raise the limit, or lower the cost", size, wording.Number(cost))
	}
	return found
}

// lent reports whether regions lend each other units of the limit. If not, it returns what to write instead.
func (l *sharedLimit) lent() (instead string, ok bool) {
	switch l.limit.Algorithm {
	case headgate.LeakyBucket:
		return "use token_bucket for units that can be lent, or write regions: home", false
	case headgate.SlidingLog:
		return "use sliding_window for units that can be lent, or write regions: home", false
	case headgate.Concurrency:
		return "choose the weights of the regions by their load", false
	}
	return "", true
}

func (l *sharedLimit) remedyForNone() string {
	if l.limit.Algorithm == headgate.TokenBucket && refillTime(l.limit) < minRefill {
		return fmt.Sprintf("shares of its burst leave out what refills in %s; raise the burst", headgate.MaxTransfer)
	}
	return smallShareRemedy
}

// refillTime returns how long an empty bucket takes to be full.
func refillTime(l headgate.Limit) time.Duration {
	full := float64(l.Window) * float64(l.Capacity()) / float64(l.Count)
	return time.Duration(full).Round(time.Millisecond)
}

// warnOfRegions logs the warnings for the rules in use, once for each version.
func (s *server) warnOfRegions(ctx context.Context) {
	rules := s.limiter.Rules()
	if rules.Version() == s.warnedRules {
		return
	}
	s.warnedRules = rules.Version()
	warnings := RegionWarnings(rules, &s.config.Regions)
	for i, w := range warnings {
		if i == maxLoggedWarnings {
			s.Log.WarnContext(ctx, "more rules that regions count together have problems: headgate rules validate --config FILE prints all", "more", len(warnings)-i)
			return
		}
		log := s.Log.WarnContext
		if w.Denies {
			log = s.Log.ErrorContext
		}
		log(ctx, "rule that regions count together has a problem", "rule", w.Rule, "limit", w.Limit, "problem", w.Problem, "version", rules.Version())
	}
}
