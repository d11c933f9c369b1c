package headgate

import (
	"math"
	"time"
)

// Decision is a Limiter's decision on a request. It is always valid, even while the store is unavailable.
type Decision struct {
	// Allowed is whether the request is allowed.
	Allowed bool
	// RetryAfter is the wait after which the request could be allowed if no other request is charged in between: the longest wait
	// of all limits that deny it. It is 0 if the request is allowed and Never if it can never be. If only concurrency limits deny the
	// request, it is an estimate by Begin, from how long requests have been in flight, and Unknown otherwise.
	RetryAfter time.Duration
	// Delay is how long to delay an allowed request before serving it: the longest delay of all leaky buckets.
	Delay time.Duration
	// Limits has the decision of every limit that applied, in the order of the rules, including shadow and candidate limits.
	Limits []LimitDecision
	// Exempt has the IDs of the rules that matched but do not apply because the request is exempt from them.
	Exempt []string
	// Skipped has the IDs of the rules with concurrency limits that were not applied, because the caller does not report the end of
	// requests; see Limiter.Begin.
	Skipped []string
	// Path is how the decision was made.
	Path Path
	// Version is the version of the rules that were applied.
	Version string
	// Time is the store's time of the decision; zero if the store was not called or did not respond.
	Time time.Time

	slots  *heldSlots
	onDone func(Outcome) // instead of slots
}

// Path is how a decision was made: by the store, by this node or by the rules alone.
type Path string

const (
	// PathNone means that no limit applied.
	PathNone Path = "none"
	// PathExempt means that no limit applied because the request is exempt from all matching rules.
	PathExempt Path = "exempt"
	// PathRules means that a rule denied without the store because a required attribute is missing.
	PathRules Path = "rules"
	// PathStore means that the store decided.
	PathStore Path = "store"
	// PathLease means that this node decided from units that it leased from the store in advance.
	PathLease Path = "lease"
	// PathCache means that this node denied from a cached denial of the store.
	PathCache Path = "cache"
	// PathLocal means that the store was unavailable for some limit, and this node's local share of that limit decided.
	PathLocal Path = "local"
	// PathFailed means that the store was unavailable for some limit, and its rule's OnStoreFailure decided.
	PathFailed Path = "failed"
)

// Origin is where a limit was defined.
type Origin uint8

const (
	// FromRule means the rule's own limit.
	FromRule Origin = iota
	// FromTier means the limit of the request's tier.
	FromTier
	// FromOverride means an override of the subject, or the caller's limit.
	FromOverride
	// FromCandidate means the candidate limit, which denies nothing.
	FromCandidate
)

var originNames = []string{"rule", "tier", "override", "candidate"}

// String returns "rule", "tier", "override" or "candidate".
func (o Origin) String() string { return nameOf(originNames, o) }

// LimitDecision is the decision of one limit on a request.
type LimitDecision struct {
	// Rule is the rule's ID. Name is the limit's name, empty for Rule.Limit.
	Rule, Name string
	Limit      Limit
	// Share is this region's share of the capacity of Limit, if Shared is set. The result is that of the share.
	Share int64
	// Subject and Counter identify the counter that was charged. Cost is the cost in units; it is negative if Commit gave units
	// back.
	Subject Subject
	Counter Counter
	Cost    int64
	Origin  Origin
	// Shared is whether regions share the limit.
	Shared bool
	// Enforced is false for a limit that denies nothing: a shadow limit, a candidate, or a subject outside of EnforcePercent.
	Enforced bool
	// Exposed is whether clients are shown the limit. They are always shown the numbers of the limit that denied the request, but
	// not its rule.
	Exposed bool
	// Metered is whether this limit reports the usage of a rule with Rule.Meter. Only the first limit of the rule does.
	Metered bool
	// Held is whether the units of a reservation are held: they are charged by Commit, not by Reserve.
	Held bool
	// Missing is the attribute that the request lacks, if the rule denies such requests.
	Missing string
	// Result is the store's result.
	Result
}

// Denies reports whether this limit denies the request.
func (l *LimitDecision) Denies() bool { return l.Enforced && l.WouldDeny() }

// WouldDeny reports whether the request exceeds this limit, enforced or not. A limit that the store did not decide denies only
// if its rule's OnStoreFailure does.
func (l *LimitDecision) WouldDeny() bool { return !l.Allowed }

// DecidedBy returns how this limit was decided; Decision.Path summarizes all limits.
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

// DeniedBy returns the limit that denies the request for the longest time, or nil if the request is allowed. Limits that the
// store decided take precedence over limits that it did not decide.
func (d *Decision) DeniedBy() *LimitDecision {
	var worst *LimitDecision
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Denies() && (worst == nil || l.outlasts(worst)) {
			worst = l
		}
	}
	return worst
}

// Shown returns the limit to show in headers that have space for only one. For a denied request it is DeniedBy, exposed or not:
// any other limit would contradict the denial. Otherwise it is the exposed limit with the smallest remaining share, or nil if
// no limit is exposed.
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

// outlasts reports whether the limit denies a request for longer than other does.
func (l *LimitDecision) outlasts(other *LimitDecision) bool {
	if decided := l.Err == nil; decided != (other.Err == nil) {
		return decided
	}
	return longer(l.RetryAfter, other.RetryAfter)
}

// before reports whether a smaller share of the limit remains than of other.
func (l *LimitDecision) before(other *LimitDecision) bool {
	// A leaky bucket may queue more than its capacity.
	capacity, otherCapacity := l.Limit.capacity(), other.Limit.capacity()
	return min(l.Remaining, capacity)*otherCapacity < min(other.Remaining, otherCapacity)*capacity
}

// longer reports whether wait a is longer than b. Never is the longest. An unknown wait is longer than none but shorter than any known
// one, which is a lower bound on both together.
func longer(a, b time.Duration) bool { return waitOrder(a) > waitOrder(b) }

// waitOrder returns a wait as a number that compares as longer specifies.
func waitOrder(wait time.Duration) time.Duration {
	switch wait {
	case Never:
		return math.MaxInt64
	case Unknown:
		return 1 // known waits are whole microseconds
	}
	return wait
}
