package headgate

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limiter decides requests by rules, with counters in a store. It is safe for use by many goroutines.
type Limiter struct {
	*core
	observer *observer
}

// core is what a limiter shares with those that WithObserver makes of it.
type core struct {
	store      Store
	rules      atomic.Pointer[RuleSet]
	exceptions *Exceptions
	subjects   *subjects
	signing    []byte  // the key of tokens, if there is a secret
	everybody  Subject // of rules with one counter for all
	rooms      sync.Pool
}

// Options of a Limiter.
type Options struct {
	// Secret is mixed into subjects, so that nobody who sees a store's keys can test a guess of what is behind them, and makes
	// the key that tokens of reservations are signed with; without it that key is the store's, if it is a Signer. All nodes must
	// have the same; a changed secret starts all counters anew.
	Secret []byte
	// Clock is the time by which overrides and exemptions expire; nil means the system's. Counting is by the store's time.
	Clock func() time.Time
}

// New makes a limiter of rules written in Go. Its error says everything that is wrong with them.
func New(store Store, rules ...Rule) (*Limiter, error) {
	set, err := Compile(rules...)
	if err != nil {
		return nil, err
	}
	return NewLimiter(store, set, Options{}), nil
}

// NewLimiter makes a limiter of rules compiled before.
func NewLimiter(store Store, rules *RuleSet, options Options) *Limiter {
	l := &Limiter{core: &core{store: store, subjects: newSubjects(options.Secret)}}
	l.signing = deriveKey(options.Secret, store)
	l.everybody, _ = l.subjects.of(nil, nil)
	l.exceptions = newExceptions(l.subjects, options.Clock)
	l.rooms.New = func() any { return &room{} }
	l.rules.Store(rules)
	return l
}

// SetRules puts other rules in the place of the present ones, at once: every request is decided by the one or the other.
// Counters go on, by rule ID and limit name.
func (l *Limiter) SetRules(rules *RuleSet) { l.rules.Store(rules) }

// Rules are those in force.
func (l *Limiter) Rules() *RuleSet { return l.rules.Load() }

// Attributes are those of the rules in force; see RuleSet.Attributes.
func (l *Limiter) Attributes() []string { return l.rules.Load().names }

// Exceptions are the overrides and exemptions, to be changed at any time.
func (l *Limiter) Exceptions() *Exceptions { return l.exceptions }

// Check decides a request and charges it, on all limits or on none. The decision is always valid to act on: where the
// store does not answer, the rules' OnStoreFailure does, and Decision.Path tells. The error is nil unless the request asks
// for a rule that there is not; it is then let pass.
//
// A request is charged also if ctx has ended, and Check does not wait for ctx but for the store, which has a deadline of its own.
// Whether there is still somebody to serve is for the caller to see.
func (l *Limiter) Check(ctx context.Context, req Request) (Decision, error) {
	return l.evaluate(ctx, CallCheck, req, (*room).check)
}

// evaluate finds the charges of a request, has them decided and reports the decision.
func (l *Limiter) evaluate(
	ctx context.Context, call Call, req Request, decide func(*room, context.Context, Store) (Decision, error),
) (d Decision, err error) {
	begun := l.observer.begin()
	r, _ := l.rooms.Get().(*room)
	defer l.putBack(r)
	if err = r.prepare(l, l.rules.Load(), req); err != nil {
		d = r.sum(PathNone)
	} else {
		d, err = decide(r, ctx, l.store)
	}
	l.observer.observe(ctx, call, req.Attributes, &d, err, begun)
	return d, err
}

func (l *Limiter) putBack(r *room) {
	r.forget()
	l.rooms.Put(r)
}

// room is where one request is worked on. It is used again for others.
type room struct {
	set      *RuleSet
	view     view
	found    []int32
	subjects []knownSubject
	charges  []Charge
	results  []Result
	about    []about
	exempt   []string // rules that would have applied
	refused  bool     // by a rule itself
	asked    *Limit   // by the caller
	pays     int      // charges that are the other half of one before them
}

// about is what a charge does not say of the limit that it is for.
type about struct {
	rule, limit int32
	origin      Origin
	exposed     bool
	repeated    bool // for another reading of the same request
	missing     string
	pay         int32 // the charge that records what this one looks for, if above 0
}

// notShared is the by of a subject that is of one reading.
const notShared = -1

// knownSubject is what rules that count by the same share.
type knownSubject struct {
	by      int
	subject Subject
	missing string
}

// prepare finds the rules of a request and makes the charges. The error is that there is no such rule.
func (r *room) prepare(l *Limiter, set *RuleSet, req Request) error {
	r.set = set
	r.refused = false
	r.found = r.found[:0]
	if req.Rule != "" {
		n, ok := set.byID[req.Rule]
		if !ok {
			return unknownRule(req.Rule)
		}
		if set.rules[n].Mode != Off {
			r.found = append(r.found, n)
		}
	}
	if set.mode == Off {
		return nil
	}
	r.view.look(set, req.Attributes)
	if req.Rule == "" {
		r.found = set.match(&r.view, r.found)
	}
	if len(r.found) == 0 {
		return nil
	}
	lookup := l.exceptions.lookup(r.view.attributes)
	for _, n := range r.found {
		rule := &set.rules[n]
		if _, by := lookup.exemption(rule); by != "" {
			r.exempt = append(r.exempt, rule.ID)
			continue
		}
		cost := rule.Cost.of(&req)
		if r.countsReadings(rule) {
			r.chargeReadings(l, &lookup, n, cost, req.Rule != "")
			continue
		}
		subject, missing := r.subject(l, set, rule)
		if missing != "" && rule.OnMissing == SkipMissing {
			continue
		}
		r.charge(&lookup, n, subject, missing, cost)
	}
	return nil
}

func (r *room) subject(l *Limiter, set *RuleSet, rule *compiledRule) (Subject, string) {
	for i := range r.subjects {
		if k := &r.subjects[i]; k.by == rule.by {
			return k.subject, k.missing
		}
	}
	subject, missing := l.everybody, ""
	if len(rule.By) > 0 {
		subject, missing = l.subjects.of(set.by[rule.by].resolve(r.view.attributes), r.view.attributes)
	}
	r.subjects = append(r.subjects, knownSubject{rule.by, subject, missing})
	return subject, missing
}

// charge appends what a rule asks of the store.
func (r *room) charge(lookup *exceptionLookup, n int32, subject Subject, missing string, cost int64) {
	rule := &r.set.rules[n]
	enforced := rule.Mode == Enforce && r.set.mode == Enforce &&
		(rule.EnforcePercent == 0 || share(rule.salt, subject) < rule.EnforcePercent)
	exposed := rule.Expose == ExposeAlways || rule.Expose == ExposeAuto && enforced && len(rule.By) > 0
	if missing != "" && rule.OnMissing == DenyMissing {
		r.refused = r.refused || enforced
		cost = 0 // in shadow nothing is counted either
	} else {
		missing = ""
	}
	tier := r.view.values[slotTier]
	for i := range rule.limits {
		limit := &rule.limits[i]
		c, a := r.add()
		c.Subject, c.Cost, c.MaxDelay, c.Observe = subject, cost, rule.MaxDelay, !enforced
		c.Strict, c.Critical, c.OnStoreFailure = rule.Strict, rule.Critical, rule.OnStoreFailure
		a.rule, a.limit, a.exposed, a.missing = n, int32(i), exposed, missing
		if o, ok := lookup.override(subject, limit.exception); ok {
			c.Limit, a.origin = o.limit.limit(), FromOverride
		} else if r.asked != nil && rule.mostAsked.Count > 0 {
			c.Limit, a.origin = rule.callerLimit(r.asked), FromOverride
		} else if t, ok := limit.tiers[tier]; ok && tier != "" {
			c.Limit, a.origin = t, FromTier
		} else {
			c.Limit = limit.limit
		}
		c.Counter = limit.counters[c.Limit.Algorithm]
		if limit.hasCandidate && a.origin == FromRule {
			r.try(limit)
		}
	}
}

// try appends the limit on trial beside the one that was appended last.
func (r *room) try(limit *compiledLimit) {
	last := len(r.charges) - 1
	c, a := r.add()
	*c, *a = r.charges[last], r.about[last]
	c.Twin, c.Observe = c.Counter, true
	c.Limit, c.Counter = limit.candidate, limit.candidateCounters[limit.candidate.Algorithm]
	a.origin, a.exposed = FromCandidate, false
}

// overdraw makes two charges of those of rules that let their limit be overdrawn: one that looks whether something is left, and
// behind all others one that is recorded in any case.
func (r *room) overdraw() {
	for i := range r.charges {
		if c, a := &r.charges[i], &r.about[i]; !r.set.rules[a.rule].Overdraw || c.Cost <= 0 || c.Credit || a.missing != "" {
			continue
		}
		r.about[i].pay = int32(len(r.charges))
		r.pays++
		pay, _ := r.add()
		*pay = r.charges[i]
		pay.Force, r.charges[i].Cost = true, 0
	}
}

// add appends an empty charge.
func (r *room) add() (*Charge, *about) {
	r.charges = append(r.charges, Charge{})
	r.about = append(r.about, about{})
	r.results = append(r.results, Result{})
	return &r.charges[len(r.charges)-1], &r.about[len(r.about)-1]
}

// check charges all limits, or none.
func (r *room) check(ctx context.Context, store Store) (Decision, error) {
	if !r.refused {
		r.overdraw()
	}
	return r.decide(ctx, store), nil
}

// decide asks the store and puts its answers together.
func (r *room) decide(ctx context.Context, store Store) Decision {
	switch {
	case len(r.charges) == 0:
		return r.sum(PathNone)
	case r.refused:
		return r.refuse()
	}
	if err := take(ctx, store, r.charges, r.results); err != nil {
		r.fail(ctx, store)
	}
	return r.sum(r.path())
}

func (r *room) path() Path { return pathOf(r.results) }

// pathOf is who decided what the results are of.
func pathOf(results []Result) Path {
	path := Path("")
	for i := range results {
		switch result := &results[i]; {
		case result.Err != nil:
			return PathFailed
		case result.Path == PathLocal:
			path = PathLocal
		case result.Path == PathCache:
			return PathCache // the others were not asked
		case result.Path == PathNone || path == PathLocal:
		case result.Path == PathLease:
			path = cmp.Or(path, PathLease)
		default:
			path = PathStore
		}
	}
	return cmp.Or(path, PathNone)
}

// refuse is the decision of rules that insist on an attribute; nothing is charged, and what the store would say is not
// known.
func (r *room) refuse() Decision {
	kept := 0
	for i, a := range r.about {
		if a.missing != "" {
			r.charges[kept], r.about[kept] = r.charges[i], a
			r.results[kept] = Result{}
			kept++
		}
	}
	r.charges, r.about, r.results = r.charges[:kept], r.about[:kept], r.results[:kept]
	return r.sum(PathRules)
}

// fail fills in what the store did not decide. If that refuses the request, what other parts of the store have granted
// is given back.
func (r *room) fail(ctx context.Context, store Store) {
	denied := false
	for i := range r.results {
		if r.results[i].Err != nil {
			r.results[i].Allowed = r.charges[i].Observe || r.charges[i].OnStoreFailure != FailDeny
		}
		denied = denied || !r.results[i].Allowed && !r.charges[i].Observe
	}
	if !denied {
		return
	}
	var refunds []Charge
	for i := range r.results {
		if undo, ok := r.charges[i].Undo(&r.results[i]); ok && r.results[i].Err == nil {
			refunds = append(refunds, undo)
			r.results[i].Granted = 0
		}
	}
	if len(refunds) > 0 {
		// A refund that fails is lost, which is on the safe side.
		_ = take(ctx, store, refunds, make([]Result, len(refunds)))
	}
}

// sum is the decision.
func (r *room) sum(path Path) Decision { return r.sumOf(0, len(r.charges)-r.pays, path, r.exempt) }

// sumOf is the decision of some of the charges, of a request that some rules exempt.
func (r *room) sumOf(from, to int, path Path, exempt []string) Decision {
	d := Decision{Allowed: true, Path: path, Version: r.set.version}
	if to > from {
		d.Limits = make([]LimitDecision, 0, to-from)
	}
	for i := from; i < to; i++ {
		c, a, result := &r.charges[i], &r.about[i], &r.results[i]
		if result.Path == PathNone {
			continue // nobody was asked
		}
		rule := &r.set.rules[a.rule]
		d.Limits = d.Limits[:len(d.Limits)+1]
		l := &d.Limits[len(d.Limits)-1]
		l.Rule, l.Name, l.Limit, l.Origin = rule.ID, rule.limits[a.limit].name, c.Limit, a.origin
		l.Subject, l.Counter, l.Cost = c.Subject, c.Counter, c.Cost
		l.Enforced, l.Exposed, l.Missing = !c.Observe, a.exposed, a.missing
		l.Metered = rule.Meter && a.limit == 0 && a.origin != FromCandidate && !a.repeated
		l.Result = *result
		if paid := &r.results[a.pay]; a.pay > 0 && paid.Err == nil {
			l.Cost, l.Granted, l.Remaining, l.ResetAfter = r.charges[a.pay].Cost, paid.Granted, paid.Remaining, paid.ResetAfter
			if l.RetryAfter > 0 && l.Limit.Algorithm == TokenBucket { // what was paid must be worked off as well
				l.RetryAfter += time.Duration(float64(paid.Granted) * float64(l.Limit.Window) / float64(l.Limit.Count))
			}
		}
		if a.missing != "" {
			l.Allowed, l.RetryAfter = false, Never
		}
		if l.Refuses() {
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
	return d
}

// forget lets go of everything that came with the request.
func (r *room) forget() {
	r.view.forget()
	r.set, r.asked, r.pays = nil, nil, 0
	clear(r.charges)
	clear(r.results)
	clear(r.about)
	r.charges, r.results, r.about, r.subjects = r.charges[:0], r.results[:0], r.about[:0], r.subjects[:0]
	r.exempt = r.exempt[:0]
}
