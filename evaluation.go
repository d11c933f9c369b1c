package headgate

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// evaluation is the pooled scratch space of one request, or of several requests that are decided together.
type evaluation struct {
	set      *RuleSet
	share    func(Subject, *Limit) Limit // of the region; nil if there is only one
	view     view
	found    []int32
	subjects []knownSubject
	charges  []Charge
	results  []Result
	info     []chargeInfo
	exempt   []string // IDs of matching rules that the request is exempt from
	// contributions are the costs of the matching rules, sorted by the rule whose counters they charge, the highest cost first. They are
	// only for a set with rules that charge the counters of others, and only of the last request.
	contributions []contribution
	denied        bool // a rule denies without the store
	// callerLimit is the limit that the caller requested; nil if none.
	callerLimit *Limit
	// overdrafts is the number of forced charges that overdraw has appended.
	overdrafts int
	slots      slotUse
	tickets    []slotTicket // of the charges on concurrency limits
	skipped    []string     // IDs of rules with a concurrency limit that was skipped
}

// chargeInfo is what an evaluation knows about a charge in addition to the Charge.
type chargeInfo struct {
	rule, limit int32
	origin      Origin
	exposed     bool
	repeated    bool // charges another reading of the same request
	missing     string
	overdraft   int32 // index of the forced charge that records the cost of this one; 0 if there is none
	// unit, scale and settled are set for reservations: the cost of a request with Request.Cost 1, how many units one more of the
	// caller's number costs, and the cost that was settled before.
	unit, scale, settled int64
}

// notShared is the by of a subject that belongs to one reading only.
const notShared = -1

// knownSubject is a subject that rules with the same By share.
type knownSubject struct {
	by      int
	subject Subject
	missing string
}

// prepare finds the rules of a request and appends their charges. Its error is ErrUnknownRule.
func (ev *evaluation) prepare(l *Limiter, set *RuleSet, req Request) error {
	ev.set, ev.share = set, l.share
	ev.denied = false
	ev.found, ev.contributions = ev.found[:0], ev.contributions[:0]
	if req.Rule != "" {
		n, ok := set.byID[req.Rule]
		if !ok {
			return unknownRule(req.Rule)
		}
		if !set.rules[n].off {
			ev.found = append(ev.found, n)
		}
	}
	if set.mode == Off {
		return nil
	}
	ev.view.load(set, req.Attributes)
	if req.Rule == "" {
		ev.found = set.match(&ev.view, ev.found)
	}
	if len(ev.found) == 0 {
		return nil
	}
	lookup := l.exceptions.lookup(ev.view.attributes)
	for _, n := range ev.found {
		rule := &set.rules[n]
		if ev.exempts(&lookup, n) {
			ev.exempt = append(ev.exempt, rule.ID)
			continue
		}
		cost := rule.Cost.of(&req, ev.baseCost(n, req.Rule != ""))
		if set.borrowing {
			ev.contributions = append(ev.contributions, contribution{counter: rule.counter, rule: n, cost: cost})
			continue
		}
		ev.apply(l, &lookup, n, cost, req.Rule != "")
	}
	if set.borrowing {
		ev.applyContributions(l, &lookup, req.Rule != "")
	}
	return nil
}

// apply appends the charges of rule n for each subject that the request is counted by.
func (ev *evaluation) apply(l *Limiter, lookup *exceptionLookup, n int32, cost int64, byID bool) {
	rule := &ev.set.rules[n]
	if ev.countsReadings(rule) {
		ev.chargeReadings(l, lookup, n, cost, byID)
		return
	}
	subject, missing := ev.subject(l, ev.set, rule)
	if missing != "" && rule.OnMissing == SkipMissing {
		return
	}
	ev.charge(lookup, n, subject, missing, cost)
}

// baseCost returns what a request costs by rule n if the caller does not replace it: by the first matching entry of the cost table, in
// the reading with the highest cost.
func (ev *evaluation) baseCost(n int32, byID bool) int64 {
	rule := &ev.set.rules[n]
	if len(rule.costs) == 0 {
		return rule.Cost.base()
	}
	if !ev.view.readings.ambiguous() {
		return rule.tableCost(&ev.view)
	}
	highest := int64(0)
	for _, h := range ev.view.readings.hitsOf(n, byID) {
		ev.view.selectReading(int(h.path), int(h.method))
		highest = max(highest, rule.tableCost(&ev.view))
	}
	ev.view.selectReading(0, 0)
	return highest
}

// tableCost returns the cost in the current reading of a request.
func (r *compiledRule) tableCost(v *view) int64 {
	for i := range r.costs {
		if allHold(r.costs[i].conditions, v) {
			return r.costs[i].cost
		}
	}
	return r.Cost.base()
}

// subject returns the subject that a rule counts the request by, and the name of a missing attribute.
func (ev *evaluation) subject(l *Limiter, set *RuleSet, rule *compiledRule) (Subject, string) {
	for i := range ev.subjects {
		if k := &ev.subjects[i]; k.by == rule.by {
			return k.subject, k.missing
		}
	}
	subject, missing := l.global, ""
	if len(rule.By) > 0 {
		subject, missing = l.subjects.of(set.by[rule.by].resolve(ev.view.attributes), ev.view.attributes)
	}
	ev.subjects = append(ev.subjects, knownSubject{rule.by, subject, missing})
	return subject, missing
}

// charge appends the charges of rule n.
func (ev *evaluation) charge(lookup *exceptionLookup, n int32, subject Subject, missing string, cost int64) {
	rule := &ev.set.rules[n]
	enforced := rule.Mode == Enforce && ev.set.mode == Enforce &&
		(rule.EnforcePercent == 0 || share(rule.salt, subject) < rule.EnforcePercent)
	exposed := rule.Expose == ExposeAlways || rule.Expose == ExposeAuto && enforced && len(rule.By) > 0
	if missing != "" && rule.OnMissing == DenyMissing {
		ev.denied = ev.denied || enforced
		cost = 0 // nothing is counted, not even in shadow mode
	} else {
		missing = ""
	}
	tier := ev.view.values[slotTier]
	for i := range rule.limits {
		limit := &rule.limits[i]
		to, origin := ev.limitFor(lookup, rule, limit, subject, tier)
		if ev.skips(&to, rule) {
			continue
		}
		c, a := ev.add()
		c.Subject, c.Cost, c.MaxDelay, c.Observe = subject, cost, rule.MaxDelay, !enforced
		ev.setLimit(c, rule, to)
		c.Strict, c.Critical, c.OnStoreFailure = rule.Strict, rule.Critical, rule.OnStoreFailure
		a.rule, a.limit, a.origin, a.exposed, a.missing = n, int32(i), origin, exposed, missing
		c.Counter = limit.counters[c.Limit.Algorithm]
		if limit.hasCandidate && a.origin == FromRule && !ev.skips(&limit.candidate, rule) {
			ev.addCandidate(rule, limit)
		}
	}
}

// setLimit sets the limit of a charge: the region's share of it if regions share it. An override may replace the limit of a rule with a
// HomeRegion by a concurrency limit, which is counted in each region.
func (ev *evaluation) setLimit(c *Charge, rule *compiledRule, limit Limit) {
	c.Limit = limit
	if rule.Regions == EachRegion || ev.share == nil {
		return
	}
	if rule.Regions == SharedRegions {
		c.Whole = limit
		c.Limit = ev.share(c.Subject, &c.Whole) // a pointer to limit would move it to the heap
	}
	if c.Regions = rule.Regions; limit.Algorithm == Concurrency {
		c.Regions = EachRegion
	}
}

// limitFor returns the limit in force for a subject: of an override, of the caller, of the tier or of the rule.
func (ev *evaluation) limitFor(lookup *exceptionLookup, rule *compiledRule, limit *compiledLimit, subject Subject, tier string) (Limit, Origin) {
	if o, ok := lookup.override(subject, limit.exception); ok {
		return o.limit.limit(), FromOverride
	}
	if ev.callerLimit != nil && rule.maxCaller.Count > 0 {
		return rule.callerLimit(ev.callerLimit), FromOverride
	}
	if t, ok := limit.tiers[tier]; ok && tier != "" {
		return t, FromTier
	}
	return limit.limit, FromRule
}

// skips reports whether a limit cannot be applied because the caller does not report the end of the request, and records the rule if so.
func (ev *evaluation) skips(l *Limit, rule *compiledRule) bool {
	if ev.slots != slotsSkipped || l.Algorithm != Concurrency {
		return false
	}
	ev.skipped = append(ev.skipped, rule.ID)
	return true
}

// addCandidate appends a charge on the candidate of the limit whose charge was appended last.
func (ev *evaluation) addCandidate(rule *compiledRule, limit *compiledLimit) {
	last := len(ev.charges) - 1
	c, a := ev.add()
	*c, *a = ev.charges[last], ev.info[last]
	c.Twin, c.Observe = c.Counter, true
	c.Counter = limit.candidateCounters[limit.candidate.Algorithm]
	ev.setLimit(c, rule, limit.candidate)
	a.origin, a.exposed = FromCandidate, false
}

// overdraw splits each charge of a rule with Overdraw into two: a peek, which checks whether a unit is left, and a forced charge
// after all others, which is always recorded.
func (ev *evaluation) overdraw() {
	for i := range ev.charges {
		if c, a := &ev.charges[i], &ev.info[i]; !ev.set.rules[a.rule].Overdraw || c.Cost <= 0 || c.Credit || a.missing != "" {
			continue
		}
		ev.info[i].overdraft = int32(len(ev.charges))
		ev.overdrafts++
		forced, _ := ev.add()
		*forced = ev.charges[i]
		forced.Force, ev.charges[i].Cost = true, 0
	}
}

// add appends an empty charge.
func (ev *evaluation) add() (*Charge, *chargeInfo) {
	ev.charges = append(ev.charges, Charge{})
	ev.info = append(ev.info, chargeInfo{})
	ev.results = append(ev.results, Result{})
	return &ev.charges[len(ev.charges)-1], &ev.info[len(ev.info)-1]
}

// check charges all limits or none.
func (ev *evaluation) check(ctx context.Context, store Store) (Decision, error) {
	if !ev.denied {
		ev.overdraw()
	}
	return ev.decide(ctx, store), nil
}

// decide charges the store and returns the decision.
func (ev *evaluation) decide(ctx context.Context, store Store) Decision {
	switch {
	case len(ev.charges) == 0:
		return ev.decision(PathNone)
	case ev.denied:
		return ev.deny()
	}
	if err := take(ctx, store, ev.charges, ev.results); err != nil {
		ev.fail(ctx, store)
	}
	return ev.decision(ev.path())
}

func (ev *evaluation) path() Path { return pathOf(ev.results) }

// pathOf returns how a request with these results was decided.
func pathOf(results []Result) Path {
	path := Path("")
	for i := range results {
		switch result := &results[i]; {
		case result.Err != nil:
			return PathFailed
		case result.Path == PathLocal:
			path = PathLocal
		case result.Path == PathCache:
			return PathCache // the other charges were not decided
		case result.Path == PathNone || path == PathLocal:
		case result.Path == PathLease:
			path = cmp.Or(path, PathLease)
		default:
			path = PathStore
		}
	}
	return cmp.Or(path, PathNone)
}

// deny returns the denial of rules that require a missing attribute. Nothing is charged, and the limits of other rules are not
// decided.
func (ev *evaluation) deny() Decision {
	kept := 0
	for i, a := range ev.info {
		if a.missing != "" {
			ev.charges[kept], ev.info[kept] = ev.charges[i], a
			ev.results[kept] = Result{}
			kept++
		}
	}
	ev.charges, ev.info, ev.results = ev.charges[:kept], ev.info[:kept], ev.results[:kept]
	return ev.decision(PathRules)
}

// fail applies OnStoreFailure to the charges that the store did not decide. If that denies the request, it refunds what other
// shards of the store have granted.
func (ev *evaluation) fail(ctx context.Context, store Store) {
	denied := false
	for i := range ev.results {
		if ev.results[i].Err != nil {
			ev.results[i].Allowed = ev.charges[i].Observe || ev.charges[i].OnStoreFailure != FailDeny
		}
		denied = denied || !ev.results[i].Allowed && !ev.charges[i].Observe
	}
	if denied {
		ev.undo(ctx, store, ev.results)
	}
}

// undo refunds what the store has granted.
func (ev *evaluation) undo(ctx context.Context, store Store, results []Result) {
	var refunds []Charge
	for i := range results {
		if ev.charges[i].Limit.Algorithm == Concurrency {
			continue // the keeper releases them
		}
		if undo, ok := ev.charges[i].Undo(&results[i]); ok && results[i].Err == nil {
			refunds = append(refunds, undo)
			results[i].Granted = 0
		}
	}
	if len(refunds) > 0 {
		// If the refund fails, the units stay charged: the count errs on the safe side.
		_ = take(ctx, store, refunds, make([]Result, len(refunds)))
	}
}

// decision returns the decision on all charges.
func (ev *evaluation) decision(path Path) Decision {
	return ev.decisionOf(0, len(ev.charges)-ev.overdrafts, path, ev.exempt)
}

// decisionOf returns the decision on the charges from index from up to but not including to.
func (ev *evaluation) decisionOf(from, to int, path Path, exempt []string) Decision {
	d := Decision{Allowed: true, Path: path, Version: ev.set.version}
	if to > from {
		d.Limits = make([]LimitDecision, 0, to-from)
	}
	for i := from; i < to; i++ {
		c, a, result := &ev.charges[i], &ev.info[i], &ev.results[i]
		if result.Path == PathNone {
			continue // it was not decided
		}
		rule := &ev.set.rules[a.rule]
		d.Limits = d.Limits[:len(d.Limits)+1]
		l := &d.Limits[len(d.Limits)-1]
		l.Rule, l.Name, l.Limit, l.Origin = rule.ID, rule.limits[a.limit].name, c.Limit, a.origin
		if c.Whole.Count > 0 {
			l.Limit, l.Shared, l.Share = c.Whole, true, shareUnits(&c.Limit)
		}
		l.Subject, l.Counter, l.Cost = c.Subject, c.Counter, c.Cost
		l.Enforced, l.Exposed, l.Held, l.Missing = !c.Observe, a.exposed, c.Holds(), a.missing
		l.Metered = rule.Meter && a.limit == 0 && a.origin != FromCandidate && !a.repeated
		l.Result = *result
		if forced := &ev.results[a.overdraft]; a.overdraft > 0 && forced.Err == nil {
			l.Cost, l.Granted, l.Remaining, l.ResetAfter = ev.charges[a.overdraft].Cost, forced.Granted, forced.Remaining, forced.ResetAfter
			if l.RetryAfter > 0 && c.Limit.Algorithm == TokenBucket { // the forced units must refill as well
				l.RetryAfter += time.Duration(float64(forced.Granted) * float64(c.Limit.Window) / float64(c.Limit.Count))
			}
		}
		if a.missing != "" {
			l.Allowed, l.RetryAfter = false, Never
		}
		if l.Denies() {
			d.Allowed = false
			if longer(l.RetryAfter, d.RetryAfter) {
				d.RetryAfter = l.RetryAfter
			}
		}
		if l.Enforced {
			d.Delay = max(d.Delay, l.Delay)
		}
		if result.Time.After(d.Time) {
			d.Time = result.Time
		}
	}
	if !d.Allowed {
		d.Delay = 0
	}
	if len(exempt) > 0 {
		d.Exempt = slices.Clone(exempt)
		if to == from {
			d.Path = PathExempt
		}
	}
	if len(ev.skipped) > 0 {
		d.Skipped = slices.Compact(slices.Clone(ev.skipped))
	}
	return d
}

// reset clears the evaluation and drops all references to the request.
func (ev *evaluation) reset() {
	ev.view.reset()
	ev.set, ev.callerLimit, ev.overdrafts = nil, nil, 0
	clear(ev.charges)
	clear(ev.results)
	clear(ev.info)
	ev.charges, ev.results, ev.info, ev.subjects = ev.charges[:0], ev.results[:0], ev.info[:0], ev.subjects[:0]
	ev.exempt = ev.exempt[:0]
	ev.slots, ev.skipped = slotsSkipped, ev.skipped[:0]
	clear(ev.tickets)
	ev.tickets = ev.tickets[:0]
}
