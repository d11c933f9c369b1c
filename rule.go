package headgate

import (
	"net/netip"
	"time"
)

// Rule limits the requests that it matches, counted by some of their attributes. All rules that match a request apply to it,
// each with all its limits.
//
//	headgate.Rule{
//		ID:    "login-by-ip",
//		Match: headgate.Match{Path: "/login", Method: "POST"},
//		By:    []string{"ip"},
//		Limit: headgate.PerMinute(10),
//	}
type Rule struct {
	// ID names the rule in decisions, headers and counters. A counter is kept as long as the rule's ID and the limit's name stay
	// the same.
	ID string
	// Description and Labels document the rule; they do not affect decisions.
	Description string
	Labels      map[string]string

	// Match and When select the requests that the rule applies to; if both are empty, it applies to all.
	Match Match
	When  Condition

	// Counter is the ID of another rule whose counters this rule charges instead of having its own. Such a rule has only an ID,
	// Description, Labels, Match, When, Cost, Costs and a Mode of Enforce or Off; everything else is that of the other rule, which
	// must not count by path or method. A request is charged once on the counters of a rule, at the highest cost by the rule itself
	// and all rules that charge its counters, as far as they match the request. If the other rule is Off or the request is exempt from
	// it, this rule does not apply either; an exemption from this rule only removes its cost.
	Counter string
	// By names the attributes that requests are counted by: requests with the same values share a counter. It is required without
	// Counter; Global means one counter for all requests.
	By []string
	// OnMissing is what happens to requests that lack an attribute of By.
	OnMissing OnMissing

	// Limit is a limit without a name, and Limits are limits by name. A rule without Counter needs at least one and may have both.
	Limit  Limit
	Limits map[string]Limit
	// Tiers replace the limits of the same name for requests whose attribute tier equals the key.
	Tiers map[string]Plan
	// MaxCallerLimit lets callers replace the rule's only limit by their own (BatchRequest.Limit), capped at this Count per Window.
	// The other fields are ignored. The zero value ignores limits of callers.
	MaxCallerLimit Limit
	// Candidate limits are counted in parallel with the limits of the same name and deny nothing: try a change before making it.
	Candidate Plan

	// Cost is how many units a request takes; the zero value means 1.
	Cost Cost
	// Costs is a table of costs: the first entry that matches a request replaces Cost.Default. If a request has several readings, the
	// reading with the highest cost counts, so that no spelling is cheaper.
	Costs []CostEntry
	// Overdraw is for costs that are reported after the request: a request is denied only if no unit is left, and its cost is
	// recorded in full even if it was denied or exceeds the limit.
	Overdraw bool
	// MaxDelay is how long a leaky bucket may delay a request before the request is denied.
	MaxDelay time.Duration

	// Priority above 0 makes the rule compete: among the matching rules with a priority that count by the same attributes, only
	// those with the highest priority apply.
	Priority int
	// Mode is whether the rule denies (Enforce), only counts (Shadow) or is disabled (Off).
	Mode Mode
	// EnforcePercent enforces the rule for this percentage of the subjects, always the same ones, and shadows it for the others;
	// 0 means all subjects.
	EnforcePercent int
	// Regions is how the rule counts if several regions decide requests; see Options.Share.
	Regions Regions
	// OnStoreFailure is what the rule does while the store is unavailable.
	OnStoreFailure OnStoreFailure
	// OnHoldExpiry is what happens to the units of a reservation that is neither committed nor cancelled before its hold expires.
	OnHoldExpiry OnHoldExpiry
	// Strict rules are decided by the store only, never from a node's leases or cached denials.
	Strict bool
	// Critical requests are the last whose store calls are rejected when the store is overloaded.
	Critical bool
	// Expose is whether clients are shown the rule's limits in headers.
	Expose Expose
	// Meter marks the rule's decisions for daily usage accounting; see LimitDecision.Metered.
	Meter bool
}

// Global is the value of Rule.By for one counter shared by all requests.
var Global = []string{}

// Plan is a set of limits: one without a name, several by name, or both.
type Plan struct {
	Limit  Limit
	Limits map[string]Limit
}

// Match selects the requests that a rule applies to. All conditions that are set must hold.
type Match struct {
	// Path is a template: /users/{id} and /users/* match one segment, /users/** any number of segments including none.
	Path string
	// Method is an HTTP method.
	Method string
	// Host is a host name without a port; *.example.com matches every subdomain of example.com.
	Host string
	// Attributes are conditions on any attribute, path, method and host included.
	Attributes map[string]Pattern
	// IgnoreCase compares paths case-insensitively. A rule that counts by path then counts them in lower case.
	IgnoreCase bool
}

// Pattern is a condition on one attribute. Values, Prefix and CIDR are alternatives: if any is set, one of them must match.
// Values of path are templates; values of host may begin with "*.".
type Pattern struct {
	Values []string
	Prefix string
	CIDR   []netip.Prefix
	// Not excludes these values, even if they match an alternative.
	Not []string
	// Presence requires the attribute to be present or absent.
	Presence Presence
}

// Presence is whether an attribute must be present. A pattern with Values, Prefix or CIDR already requires it.
type Presence uint8

// The values of Presence.
const (
	AnyPresence Presence = iota
	Present
	Absent
)

// OneOf returns a pattern that matches any of the values.
func OneOf(values ...string) Pattern { return Pattern{Values: values} }

// NoneOf returns a pattern that matches unless the attribute has one of the values.
func NoneOf(values ...string) Pattern { return Pattern{Not: values} }

// HasPrefix returns a pattern that matches values with the prefix.
func HasPrefix(prefix string) Pattern { return Pattern{Prefix: prefix} }

// InCIDR returns a pattern that matches addresses in any of the networks.
func InCIDR(networks ...netip.Prefix) Pattern { return Pattern{CIDR: networks} }

// IsPresent returns a pattern that matches if the request has the attribute.
func IsPresent() Pattern { return Pattern{Presence: Present} }

// IsAbsent returns a pattern that matches if the request lacks the attribute.
func IsAbsent() Pattern { return Pattern{Presence: Absent} }

// Condition is a predicate that Match cannot express. Package ruledoc compiles it from a CEL expression.
type Condition struct {
	// Text is the condition's source.
	Text string
	// Attributes are the names of the attributes that Holds reads; nil means that they are unknown.
	Attributes []string
	// Steps is an upper bound on the cost of Holds, as estimated by its author; a step takes a few nanoseconds. 0 means unknown.
	Steps int
	// Holds reports whether the condition holds. It must be fast, free of side effects and safe for concurrent use, and must not
	// retain the attributes. It is called for each reading of a request, with the path and method of that reading (see OtherPath).
	Holds func(Attributes) bool
}

// String returns the condition's source.
func (c Condition) String() string { return c.Text }

// OnMissing is what a rule does with a request that lacks an attribute of Rule.By.
type OnMissing uint8

const (
	// ShareMissing counts all requests without the attribute on one shared counter.
	ShareMissing OnMissing = iota
	// SkipMissing does not apply the rule to the request.
	SkipMissing
	// DenyMissing denies the request.
	DenyMissing
)

// Mode is whether a rule denies, only counts or is disabled.
type Mode uint8

const (
	// Enforce denies requests that exceed a limit.
	Enforce Mode = iota
	// Shadow decides and counts requests but denies none.
	Shadow
	// Off disables the rule.
	Off
)

// OnStoreFailure is what a rule does while the store is unavailable.
type OnStoreFailure uint8

const (
	// FailLocal enforces this node's local share of the limit if package storewrap is configured with one; otherwise it behaves
	// like FailAllow.
	FailLocal OnStoreFailure = iota
	// FailAllow allows requests.
	FailAllow
	// FailDeny denies requests.
	FailDeny
)

// OnHoldExpiry is what happens to the units of a reservation that is not settled before its hold expires, for example because its node was
// killed.
type OnHoldExpiry uint8

const (
	// ReleaseHold makes the units available again.
	ReleaseHold OnHoldExpiry = iota
	// ChargeHold keeps the units charged, as if they had been used: reservations are charged when they are made, and Commit gives
	// back what was not used.
	ChargeHold
)

// Expose is whether clients are shown a rule's limits. The response to a denied request always shows the numbers of the limit
// that denied it, without the rule's name.
type Expose uint8

const (
	// ExposeAuto shows the rule unless it is in shadow mode or counts all requests together.
	ExposeAuto Expose = iota
	// ExposeAlways shows the rule's limits.
	ExposeAlways
	// ExposeNever hides the rule's limits.
	ExposeNever
)

var (
	onMissingNames      = []string{"share", "skip", "deny"}
	modeNames           = []string{"enforce", "shadow", "off"}
	onStoreFailureNames = []string{"local", "allow", "deny"}
	onHoldExpiryNames   = []string{"release", "charge"}
	exposeNames         = []string{"auto", "true", "false"}
)

// String returns the name used in rule files: "share".
func (o OnMissing) String() string { return nameOf(onMissingNames, o) }

// String returns the name used in rule files: "enforce".
func (m Mode) String() string { return nameOf(modeNames, m) }

// String returns the name used in rule files: "local".
func (o OnStoreFailure) String() string { return nameOf(onStoreFailureNames, o) }

// String returns the name used in rule files: "release".
func (o OnHoldExpiry) String() string { return nameOf(onHoldExpiryNames, o) }

// String returns "auto", "true" or "false".
func (e Expose) String() string { return nameOf(exposeNames, e) }

// nameOf returns the name of an enumeration's value, or "unknown".
func nameOf[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}
