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

// Override replaces limits of a rule for one subject, for example for a customer who needs more until Friday.
type Override struct {
	Rule string
	// Subject has the attributes that the rule counts by: {"tenant": "acme", "user": "ann"}. For a rule that counts by client it
	// has the attribute that client is derived from: {"api_key": …}, the key or its hash. For a rule that ignores case, path must
	// be in lower case.
	Subject Attributes
	// Limit and Limits replace the limits of the same name. They take precedence over the limits of a tier.
	Limit  Limit
	Limits map[string]Limit
	// Expires is when the override ends; zero means never.
	Expires time.Time
	// Reason documents the override; Explain shows it.
	Reason string
}

// Exemption excludes requests whose Attribute has this Value from a rule, or from all rules.
type Exemption struct {
	// Rule is the rule's ID; empty means all rules.
	Rule string
	// Attribute is api_key, user, service_account or ip.
	Attribute string
	// Value is the value of the attribute; for ip it is an address or a network: 10.0.0.0/8.
	Value string
	// Expires is when the exemption ends; zero means never.
	Expires time.Time
	// Reason documents the exemption; Explain shows it.
	Reason string
}

// exemptBy are the attributes that exemptions may use.
var exemptBy = []string{attrAPIKey, "user", "service_account", attrIP}

// Exceptions are the overrides and exemptions of a Limiter. There may be millions of them, and they change without compiling the
// rules again. They are safe for concurrent use.
//
// Set and Exempt add one exception, Unset and Unexempt remove one, and Replace replaces all of them.
type Exceptions struct {
	subjects *subjects
	clock    func() time.Time
	tables   atomic.Pointer[exceptionTables]
	change   sync.Mutex // serializes changes, so that none is written to tables that are being replaced
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

// Replace replaces all overrides and exemptions atomically; nil means none. It reads them one by one, so that millions of them need
// not be in memory in addition to the tables. If a sequence yields an error or an exception is invalid, it changes nothing.
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

// addAll adds all exceptions to t. Its error joins the errors of all invalid ones; an error of the sequence ends it.
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

// Set adds an override, or replaces the one of the same rule, subject and limit names.
func (e *Exceptions) Set(o Override) error {
	e.change.Lock()
	defer e.change.Unlock()
	return e.setIn(e.tables.Load(), o)
}

// Unset removes the override of the same rule, subject and limit names.
func (e *Exceptions) Unset(o Override) {
	subject := e.subjectOf(o.Subject)
	limits, _ := limitsOf(o.Limit, o.Limits)
	e.change.Lock()
	defer e.change.Unlock()
	for name := range limits {
		e.tables.Load().overrides.remove(exceptionKey(subject, exceptionOf(o.Rule, name)))
	}
}

// Exempt adds an exemption, or replaces the one of the same rule, attribute and value.
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

// Len returns the number of overridden limits and of exemptions, including expired ones that were not yet removed.
func (e *Exceptions) Len() (overrides, exemptions int) {
	t := e.tables.Load()
	return t.overrides.len(), t.exempt.len() + t.networks.len()
}

// setIn adds an override to t.
func (e *Exceptions) setIn(t *exceptionTables, o Override) error {
	limits, problems := limitsOf(o.Limit, o.Limits)
	switch {
	case o.Rule == "":
		return errors.New("override: rule: required")
	case len(problems) > 0:
		return fmt.Errorf("override of rule %q: %s: %s", o.Rule, strings.Join(problems[0].path, "."), problems[0].text)
	case len(limits) == 0:
		return fmt.Errorf("override of rule %q: limit: required", o.Rule)
	}
	subject := e.subjectOf(o.Subject)
	until := exception{expires: expiryOf(o.Expires), reason: unique.Make(o.Reason)}
	for name, limit := range limits {
		t.overrides.set(exceptionKey(subject, exceptionOf(o.Rule, name)), override{until, pack(limit)}, e.now())
	}
	return nil
}

// exemptIn adds an exemption to t.
func (e *Exceptions) exemptIn(t *exceptionTables, x Exemption) error {
	if !slices.Contains(exemptBy, x.Attribute) {
		return fmt.Errorf("exemption: attribute %q: must be one of %s", x.Attribute, strings.Join(exemptBy, ", "))
	}
	if x.Value == "" {
		return fmt.Errorf("exemption by %s: value: required", x.Attribute)
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

// subjectOf returns the subject of the attributes, with API keys replaced by their hashes.
func (e *Exceptions) subjectOf(a Attributes) Subject {
	var hashed Attributes
	a = hashKey(hashKey(a, attrAPIKey, &hashed), attrKeyEntry, &hashed)
	s, _ := subjectOf(e.subjects.secret, slices.Sorted(maps.Keys(a)), a)
	return s
}

// parseNetwork parses an address or a network.
func parseNetwork(text string) (netip.Prefix, error) {
	n, ok := parseAddress(text)
	if !ok {
		return n, fmt.Errorf("exemption by ip: value %q: not a network: write 10.0.0.0/8", text)
	}
	return n.Masked(), nil
}
