package streamlimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelog"
)

const defaultMaxDelay = 5 * time.Second

// Checker decides messages by rules. *headgate.Limiter implements it.
type Checker interface {
	// Check decides a message and charges it. The gate applies the decision even if the error is not nil.
	Check(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	// Attributes returns the names of the attributes that the rules use. It returns the same names until the rules change.
	Attributes() []string
}

// Options configures Limits. The zero value applies the rules of the Checker only, and delays messages in excess.
type Options struct {
	// Connection is the limit of each connection, counted in memory. It can have any algorithm except Concurrency. The default is the zero
	// value: connections have no limit of their own.
	//
	// Changes of the wall clock, and time during which the machine is suspended, matter only to windows on the clock or of the calendar.
	Connection headgate.Limit
	// OnExcess is what happens to a message that exceeds a limit: Delay, Drop or Close. The default is Delay.
	OnExcess Action
	// MaxDelay is how long a message in excess may be delayed, by all limits together and with the wait for earlier messages of its
	// connection. The default (0) is 5 seconds; a negative value means that none is delayed. Delays by leaky buckets of rules do not
	// count.
	MaxDelay time.Duration
	// Wait waits for d.Delay, the delay that leaky buckets impose on a message. It may deny the message in d instead, for example because
	// too many messages wait: the message is then dropped, or its connection closed. It returns an error only if ctx ends first. The
	// default waits for every message.
	Wait func(ctx context.Context, d *headgate.Decision) error
	// Log receives an error when the store does not decide, at most every 10 seconds. The default is slog.Default().
	Log *slog.Logger
}

// Limits limits the messages of many connections. It is safe for concurrent use.
type Limits struct {
	checker  Checker
	options  Options
	charges  []headgate.Charge // of a message of cost 1 on Options.Connection; nil without such a limit
	clock    clock
	failures ratelog.Limiter

	ruleSets ruleSets                   // the Checker, if it has rules
	known    atomic.Pointer[knownRules] // the rules in force
}

// ruleSets is a Checker whose rules are known, such as *headgate.Limiter.
type ruleSets interface {
	// Rules returns the rules in force.
	Rules() *headgate.RuleSet
}

// knownRules is what the gates know about a set of rules.
type knownRules struct {
	*headgate.RuleSet
	// fixed is whether the same rules match all messages of a connection.
	fixed bool
}

// New returns limits. checker may be nil if Options.Connection is the only limit.
func New(checker Checker, options Options) (*Limits, error) {
	switch options.OnExcess {
	case Pass:
		options.OnExcess = Delay
	case Delay, Drop, Close:
	default:
		return nil, fmt.Errorf("streamlimit: on excess %d: must be Delay, Drop or Close", options.OnExcess)
	}
	if options.MaxDelay == 0 {
		options.MaxDelay = defaultMaxDelay
	}
	if options.Log == nil {
		options.Log = slog.Default()
	}
	l := &Limits{checker: checker, options: options, clock: newClock(&options.Connection)}
	l.ruleSets, _ = checker.(ruleSets)
	if options.Connection == (headgate.Limit{}) {
		if checker == nil {
			return nil, errors.New("streamlimit: neither a checker nor a limit of connections: create a checker with headgate.New")
		}
		return l, nil
	}
	if options.Connection.Algorithm == headgate.Concurrency {
		return nil, errors.New("streamlimit: connection: a concurrency limit does not apply to messages: " +
			"write a rule with it and call Limiter.Begin when a connection opens")
	}
	if err := options.Connection.Validate(); err != nil {
		return nil, fmt.Errorf("streamlimit: connection: %w", err)
	}
	l.charges = []headgate.Charge{{Limit: options.Connection, Cost: 1}}
	return l, nil
}

// Open returns the gate of a new connection whose client has these attributes, at least those that Checker.Attributes names. Use
// OpenFunc if the rules may change while the connection is open.
func (l *Limits) Open(attributes headgate.Attributes) *Gate {
	fixed := maps.Clone(attributes)
	return l.OpenFunc(func(...string) headgate.Attributes { return fixed })
}

// OpenFunc returns the gate of a new connection. The gate calls resolve for the attributes of the client before the first message, and
// again when changed rules use other attributes. names lists the attributes that the rules use.
func (l *Limits) OpenFunc(resolve func(names ...string) headgate.Attributes) *Gate {
	return &Gate{limits: l, resolve: resolve, turn: make(chan struct{}, 1)}
}

// fixedRules returns the rules in force if the same of them match all messages of a connection, so that a gate need not check messages
// that no rule matches. It returns nil if the rules are unknown, or if they may depend on the size of a message or on the time.
func (l *Limits) fixedRules() *headgate.RuleSet {
	if l.ruleSets == nil {
		return nil
	}
	set, known := l.ruleSets.Rules(), l.known.Load()
	if known == nil || known.RuleSet != set {
		known = &knownRules{set, !slices.Contains(set.Attributes(), attrBytes)}
		for _, rule := range set.Rules() {
			if rule.When.Holds != nil && rule.When.Attributes == nil {
				known.fixed = false // it may read anything
			}
		}
		l.known.Store(known)
	}
	if !known.fixed {
		return nil
	}
	return set
}
