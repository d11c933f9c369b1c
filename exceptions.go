package headgate

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/headgate/headgate/internal/wallclock"
)

// Override gives one subject other limits than a rule's: a customer who needs more until Friday.
type Override struct {
	Rule string
	// Subject has the attributes that the rule counts by: {"tenant": "acme", "user": "ann"}. Of a rule by client it has
	// the one that stands for the client: {"api_key": …}, which is the key or its hash. The path of a rule that ignores case is
	// in lower case.
	Subject Attributes
	// Limit and Limits replace those of the same name, before those of a tier.
	Limit  Limit
	Limits map[string]Limit
	// Expires is when the override ends; zero means never.
	Expires time.Time
	// Reason is for people.
	Reason string
}

// Exemption frees whoever has an attribute with this value from a rule, or from all rules.
type Exemption struct {
	// Rule is the rule's ID; empty means all rules.
	Rule string
	// Attribute is api_key, user, service_account or ip.
	Attribute string
	// Value of the attribute; of ip a network: 10.0.0.0/8.
	Value string
	// Expires is when the exemption ends; zero means never.
	Expires time.Time
	// Reason is for people.
	Reason string
}

var exemptBy = []string{attrAPIKey, "user", "service_account", attrIP}

// Exceptions are the overrides and exemptions of a Limiter: data beside the rules, by the million, that changes without
// compiling them again. They are safe for use by many goroutines.
type Exceptions struct {
	subjects *subjects
	clock    func() time.Time
	tables   atomic.Pointer[exceptionTables]
	change   sync.Mutex // one change at a time, so that none goes to tables that are just being replaced
}

func newExceptions(s *subjects, clock func() time.Time) *Exceptions {
	if clock == nil {
		clock = wallclock.New()
	}
	e := &Exceptions{subjects: s, clock: clock}
	e.tables.Store(&exceptionTables{})
	return e
}

// now returns the time in Unix seconds.
func (e *Exceptions) now() int64 { return e.clock().Unix() }

// Replace puts these in the place of all that were there, at once; nil is none. They come one by one, so that a million of
// them need not be in memory beside the tables; an error among them ends it, and nothing has changed.
func (e *Exceptions) Replace(overrides iter.Seq2[Override, error], exemptions iter.Seq2[Exemption, error]) error {
	t := &exceptionTables{}
	if err := errors.Join(addAll(overrides, t, e.setIn), addAll(exemptions, t, e.exemptIn)); err != nil {
		return err
	}
	e.change.Lock()
	defer e.change.Unlock()
	e.tables.Store(t)
	return nil
}

// addAll says all that is wrong with them.
func addAll[T any](all iter.Seq2[T, error], t *exceptionTables, add func(*exceptionTables, T) error) error {
	if all == nil {
		return nil
	}
	var problems []error
	for one, err := range all {
		if err != nil {
			return err
		}
		if err := add(t, one); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// Set adds an override, or changes the one of the same rule, subject and limit name.
func (e *Exceptions) Set(o Override) error {
	e.change.Lock()
	defer e.change.Unlock()
	return e.setIn(e.tables.Load(), o)
}

// Unset removes what an override of the same rule, subject and limit names has set.
func (e *Exceptions) Unset(o Override) {
	subject := e.subjectOf(o.Subject)
	limits, _ := limitsOf(o.Limit, o.Limits)
	e.change.Lock()
	defer e.change.Unlock()
	for name := range limits {
		e.tables.Load().overrides.remove(exceptionKey(subject, exceptionOf(o.Rule, name)))
	}
}

// Exempt adds an exemption, or changes the one of the same rule, attribute and value.
func (e *Exceptions) Exempt(x Exemption) error {
	e.change.Lock()
	defer e.change.Unlock()
	return e.exemptIn(e.tables.Load(), x)
}

// Unexempt removes the exemption of the same rule, attribute and value.
func (e *Exceptions) Unexempt(x Exemption) {
	e.change.Lock()
	defer e.change.Unlock()
	t := e.tables.Load()
	if x.Attribute != attrIP {
		t.exempt.remove(exceptionKey(e.subjectOf(Attributes{x.Attribute: x.Value}), exceptionOf(x.Rule, "")))
		return
	}
	if network, err := parseNetwork(x.Value); err == nil {
		t.networks.remove(networkKey{network, x.Rule})
	}
}

// Len is how many limits are overridden and how many exemptions there are, expired ones included until they are swept.
func (e *Exceptions) Len() (overrides, exemptions int) {
	t := e.tables.Load()
	return t.overrides.len(), t.exempt.len() + t.networks.len()
}

func (e *Exceptions) setIn(t *exceptionTables, o Override) error {
	limits, problems := limitsOf(o.Limit, o.Limits)
	switch {
	case o.Rule == "":
		return errors.New("an override needs the id of a rule")
	case len(problems) > 0:
		return fmt.Errorf("override of rule %q: %s: %s", o.Rule, strings.Join(problems[0].path, "."), problems[0].text)
	case len(limits) == 0:
		return fmt.Errorf("override of rule %q has no limit", o.Rule)
	}
	subject := e.subjectOf(o.Subject)
	until := exception{expires: expiryOf(o.Expires), reason: unique.Make(o.Reason)}
	for name, limit := range limits {
		t.overrides.set(exceptionKey(subject, exceptionOf(o.Rule, name)), override{until, pack(limit)}, e.now())
	}
	return nil
}

func (e *Exceptions) exemptIn(t *exceptionTables, x Exemption) error {
	if !slices.Contains(exemptBy, x.Attribute) {
		return fmt.Errorf("an exemption is by %s, not by %q", strings.Join(exemptBy, ", "), x.Attribute)
	}
	if x.Value == "" {
		return fmt.Errorf("an exemption by %s needs its value", x.Attribute)
	}
	entry := exception{expires: expiryOf(x.Expires), reason: unique.Make(x.Reason)}
	if x.Attribute != attrIP {
		t.exempt.set(exceptionKey(e.subjectOf(Attributes{x.Attribute: x.Value}), exceptionOf(x.Rule, "")), entry, e.now())
		t.kinds[slices.Index(exemptBy, x.Attribute)].Store(true)
		return nil
	}
	network, err := parseNetwork(x.Value)
	if err != nil {
		return err
	}
	t.networks.set(networkKey{network, x.Rule}, entry)
	t.kinds[slices.Index(exemptBy, attrIP)].Store(true)
	return nil
}

func (e *Exceptions) subjectOf(a Attributes) Subject {
	var hashed Attributes
	a = hashKey(hashKey(a, attrAPIKey, &hashed), attrKeyEntry, &hashed)
	s, _ := subjectOf(e.subjects.secret, slices.Sorted(maps.Keys(a)), a)
	return s
}

func parseNetwork(text string) (netip.Prefix, error) {
	n, ok := parseAddress(text)
	if !ok {
		return n, fmt.Errorf("%q is no network: write 10.0.0.0/8", text)
	}
	return n.Masked(), nil
}
