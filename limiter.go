package headgate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Limiter decides requests by rules, with counters in a store. It is safe for concurrent use.
//
// Choose the method by when the cost of a request is known and how many requests are decided together:
//
//   - [Limiter.Check] decides a request and charges it. Most callers need only this method.
//   - [Limiter.Begin] does the same for callers that report the end of the request: only it applies concurrency limits.
//   - [Limiter.Peek] returns the decision that Check would return, without charging.
//   - [Limiter.Reserve] holds an estimated cost if the actual cost is known only after the request. [Limiter.Commit] charges the
//     actual cost, and [Limiter.Cancel] releases the hold; one of them ends a reservation. [Limiter.Extend] continues it, for
//     example for a long stream.
//   - [Limiter.CheckAll] decides several requests together: all of them are charged, or none.
//   - [Limiter.Refund] gives back what a request costs, for example after the work failed.
//   - [Limiter.Explain] returns the decision and, for every rule, why it applies or not, without charging. It is for operators,
//     not for the request path.
type Limiter struct {
	*core
	observer *observer
}

// core is the state that a limiter shares with the limiters that WithObserver returns.
type core struct {
	store       Store
	rules       atomic.Pointer[RuleSet]
	exceptions  *Exceptions
	subjects    *subjects
	signing     []byte  // key for reservation tokens; nil without Options.Secret
	global      Subject // subject of rules with one counter for all requests
	evaluations sync.Pool
	slots       *slotKeeper
	share       func(Subject, *Limit) Limit // nil if there is only one region
}

// Options configure a Limiter. The zero value is valid.
type Options struct {
	// Secret keys the hashes of subjects, so that a reader of the store's keys cannot test guesses of the values behind them, and
	// derives the key that signs reservation tokens. Without it, tokens are signed with the store's key if the store is a Signer.
	// All nodes must use the same secret; changing it resets all counters.
	Secret []byte
	// Share returns this region's share of a limit of a rule with SharedRegions, for example Fraction.Share; nil if there is only one
	// region. It is called for each request and must be fast and safe for concurrent use.
	Share func(Subject, *Limit) Limit
	// Clock returns the time by which overrides and exemptions expire; nil means the system clock. Counting uses the store's clock.
	Clock func() time.Time
}

// New returns a limiter for rules written in Go. Its error joins a *RuleError for every mistake in the rules.
func New(store Store, rules ...Rule) (*Limiter, error) {
	set, err := Compile(rules...)
	if err != nil {
		return nil, err
	}
	return NewLimiter(store, set, Options{}), nil
}

// NewLimiter returns a limiter for compiled rules.
func NewLimiter(store Store, rules *RuleSet, options Options) *Limiter {
	l := &Limiter{core: &core{store: store, subjects: newSubjects(options.Secret)}}
	l.signing = deriveKey(options.Secret, store)
	l.global, _ = l.subjects.of(nil, nil)
	l.exceptions = newExceptions(l.subjects, options.Clock)
	l.evaluations.New = func() any { return &evaluation{} }
	l.slots = newSlotKeeper(store)
	l.share = options.Share
	l.rules.Store(rules)
	return l
}

// SetRules replaces the rules atomically: every request is decided either by the old or by the new rules. Counters of limits with
// the same rule ID and limit name are kept.
func (l *Limiter) SetRules(rules *RuleSet) { l.rules.Store(rules) }

// Rules returns the rules in force.
func (l *Limiter) Rules() *RuleSet { return l.rules.Load() }

// Attributes returns the names of the attributes that the rules in force read; see RuleSet.Attributes.
func (l *Limiter) Attributes() []string { return l.rules.Load().names }

// Exceptions returns the limiter's overrides and exemptions. They can be changed at any time.
func (l *Limiter) Exceptions() *Exceptions { return l.exceptions }

// Check decides a request and charges it on all limits that apply, or on none. The decision is always valid: if the store is
// unavailable, Rule.OnStoreFailure decides and Decision.Path reports it. The error is nil unless Request.Rule names an unknown
// rule; it then wraps ErrUnknownRule and the decision allows the request.
//
// Check charges the request even if ctx is done, and returns when the store does, which has its own deadline. Callers that care
// whether the client is still connected must check ctx themselves.
func (l *Limiter) Check(ctx context.Context, req Request) (Decision, error) {
	return l.evaluate(ctx, CallCheck, req, slotsSkipped, (*evaluation).check)
}

// evaluate makes the charges of a request, calls decide on them and reports the decision to the observer.
func (l *Limiter) evaluate(
	ctx context.Context, call Call, req Request, slots slotUse, decide func(*evaluation, context.Context, Store) (Decision, error),
) (d Decision, err error) {
	begun := l.observer.begin()
	ev, _ := l.evaluations.Get().(*evaluation)
	defer l.release(ev)
	ev.slots = slots
	if err = ev.prepare(l, l.rules.Load(), req); err != nil {
		d = ev.decision(PathNone)
	} else {
		d, err = decide(ev, ctx, l.store)
	}
	l.observer.observe(ctx, call, req.Attributes, &d, err, begun)
	return d, err
}

// release returns an evaluation to the pool.
func (l *Limiter) release(ev *evaluation) {
	ev.reset()
	l.evaluations.Put(ev)
}
