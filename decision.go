package headgate

import "time"

// Decision is what a Limiter says to a request. It is always valid to act on.
type Decision struct {
	// Allowed says whether the request may pass.
	Allowed bool
	// RetryAfter is when the request could pass if nobody else comes between: the longest wait of all limits that deny
	// it; 0 if it may pass, Never if it never can.
	RetryAfter time.Duration
	// Delay is how long to hold the request before it goes on: the longest of all leaky buckets.
	Delay time.Duration
	// Limits is every limit that applied, in the order of the rules, those in shadow and on trial included.
	Limits []LimitDecision
	// Exempt is the rules that matched and do not apply, since the request is exempt from them.
	Exempt []string
	// Path tells who decided.
	Path Path
	// Version of the rules that were applied.
	Version string
	// Time is the store's; zero if it was not asked or did not answer.
	Time time.Time
}

// Path tells who decided.
type Path string

const (
	// PathNone means that no limit applied.
	PathNone Path = "none"
	// PathExempt means that no limit applied, because the request is exempt from all rules that match.
	PathExempt Path = "exempt"
	// PathRules means that a rule decided by itself: an attribute was missing that it insists on.
	PathRules Path = "rules"
	// PathStore means that the store decided.
	PathStore Path = "store"
	// PathLease means that this node decided, by units that it has taken from the store in advance.
	PathLease Path = "lease"
	// PathCache means that this node denied, because the store has done so a moment ago.
	PathCache Path = "cache"
	// PathLocal means that the store did not answer for some limit, and this node's share of it decided.
	PathLocal Path = "local"
	// PathFailed means that the store did not answer for some limit, and its rule's OnStoreFailure decided.
	PathFailed Path = "failed"
)

// Origin tells where a limit came from.
type Origin uint8

const (
	// FromRule is the rule's own limit.
	FromRule Origin = iota
	// FromTier is that of the request's tier.
	FromTier
	// FromOverride is that of an override of the subject, or one that the caller has brought.
	FromOverride
	// FromCandidate is that on trial.
	FromCandidate
)

var originNames = []string{"rule", "tier", "override", "candidate"}

// String is "rule", "tier", "override" or "candidate".
func (o Origin) String() string { return nameOf(originNames, o) }

// LimitDecision is what one limit says to a request.
type LimitDecision struct {
	// Rule and Name of the limit; Name is empty if the rule has one limit only.
	Rule, Name string
	Limit      Limit
	// Subject and Counter are what was charged, and Cost how much; below 0 if Commit has given back some of it.
	Subject Subject
	Counter Counter
	Cost    int64
	Origin  Origin
	// Enforced is false for a limit that denies nothing: in shadow, on trial, or outside of EnforcePercent.
	Enforced bool
	// Exposed says whether clients are shown the limit. What denies their request they are shown in any case, but not whose
	// limit it is.
	Exposed bool
	// Metered says whether the rule's usage is added up, which this limit stands for: the first of its rule.
	Metered bool
	// Missing is the attribute that the request lacks, if the rule denies such requests.
	Missing string
	// Result is what the store said.
	Result
}

// Denies is true if this limit keeps the request from passing.
func (l *LimitDecision) Denies() bool { return l.Enforced && l.WouldDeny() }

// WouldDeny is true if the request exceeds this limit, enforced or not. A limit that the store did not decide denies
// only if its rule says so.
func (l *LimitDecision) WouldDeny() bool { return !l.Allowed }

// DecidedBy tells who decided this limit, which Decision.Path tells of all of them.
func (l *LimitDecision) DecidedBy() Path {
	switch {
	case l.Missing != "":
		return PathRules
	case l.Err != nil:
		return PathFailed
	case l.Path == "":
		return PathStore
	}
	return l.Path
}

// Denied returns the limit that denies the request for the longest time, or nil if the request may pass. A limit that the
// store did not decide comes after those that it did.
func (d *Decision) DeniedBy() *LimitDecision {
	var worst *LimitDecision
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Denies() && (worst == nil || l.outlasts(worst)) {
			worst = l
		}
	}
	return worst
}

// Shown returns the limit that headers with room for one show. Of a denied request that is the one that denies it for the
// longest time, exposed or not: anything else would contradict the denial. Otherwise it is the exposed limit with the least
// left, or nil if there is none.
func (d *Decision) Shown() *LimitDecision {
	if denied := d.DeniedBy(); denied != nil {
		return denied
	}
	var shown *LimitDecision
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Exposed && l.Err == nil && (shown == nil || l.before(shown)) {
			shown = l
		}
	}
	return shown
}

// outlasts reports whether the limit denies a request for longer than another one does.
func (l *LimitDecision) outlasts(other *LimitDecision) bool {
	if decided := l.Err == nil; decided != (other.Err == nil) {
		return decided
	}
	return longer(l.RetryAfter, other.RetryAfter)
}

// before reports whether a smaller part of the limit is left than of another one.
func (l *LimitDecision) before(other *LimitDecision) bool {
	// A leaky bucket's queue may have room for more than it lets pass at once.
	most, others := l.Limit.capacity(), other.Limit.capacity()
	return min(l.Remaining, most)*others < min(other.Remaining, others)*most
}

// longer compares waits, of which Never is the longest.
func longer(a, b time.Duration) bool {
	if b == Never {
		return false
	}
	return a == Never || a > b
}
