package headgate

import (
	"context"
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
	store       Store
	rules       atomic.Pointer[RuleSet]
	exceptions  *Exceptions
	subjects    *subjects
	signing     []byte  // the key of tokens, if there is a secret
	everybody   Subject // of rules with one counter for all
	evaluations sync.Pool
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
	l.evaluations.New = func() any { return &evaluation{} }
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
	return l.evaluate(ctx, CallCheck, req, (*evaluation).check)
}

// evaluate finds the charges of a request, has them decided and reports the decision.
func (l *Limiter) evaluate(
	ctx context.Context, call Call, req Request, decide func(*evaluation, context.Context, Store) (Decision, error),
) (d Decision, err error) {
	begun := l.observer.begin()
	ev, _ := l.evaluations.Get().(*evaluation)
	defer l.putBack(ev)
	if err = ev.prepare(l, l.rules.Load(), req); err != nil {
		d = ev.sum(PathNone)
	} else {
		d, err = decide(ev, ctx, l.store)
	}
	l.observer.observe(ctx, call, req.Attributes, &d, err, begun)
	return d, err
}

func (l *Limiter) putBack(ev *evaluation) {
	ev.forget()
	l.evaluations.Put(ev)
}
