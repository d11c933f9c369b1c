package headgate

import (
	"net/netip"
	"time"
)

// Rule says who may do what how often. All rules that match a request apply to it, each with all its limits.
//
//	headgate.Rule{
//		ID:    "login-by-ip",
//		Match: headgate.Match{Path: "/login", Method: "POST"},
//		By:    []string{"ip"},
//		Limit: headgate.PerMinute(10),
//	}
type Rule struct {
	// ID names the rule in decisions, headers and counters; a counter lives as long as the ID and the limit's name do.
	ID string
	// Description and Labels are for people and their tools.
	Description string
	Labels      map[string]string

	// Match and When say which requests the rule is for; both empty means all.
	Match Match
	When  Condition

	// By names the attributes that are counted by. It must be given: Global is one counter for all requests.
	By []string
	// OnMissing is for requests that lack an attribute of By.
	OnMissing OnMissing

	// Limit is the rule's limit if there is one; Limits are several by name. A rule may have both.
	Limit  Limit
	Limits map[string]Limit
	// Tiers replace limits of the same name for requests whose attribute tier is the key.
	Tiers map[string]Plan
	// MaxCallerLimit lets callers bring a limit of their own (BatchRequest.Limit) in the place of the rule's only one, up to this
	// Count per Window; of the rest of it nothing is read. Without it they have no say.
	MaxCallerLimit Limit
	// Candidate limits are counted beside those of the same name, and deny nothing: a trial before a change.
	Candidate Plan

	Cost Cost
	// Overdraw is for costs that are told afterwards: a request is denied if nothing is left, and what it costs is recorded in any
	// case, also beyond the limit.
	Overdraw bool
	// MaxDelay is how long a request may be made to wait by a leaky bucket before it is denied.
	MaxDelay time.Duration

	// Priority above 0 makes the rule compete: of the matching ones with a priority that count by the same attributes only
	// the highest applies.
	Priority int
	// Mode shadow decides and counts without denying.
	Mode Mode
	// EnforcePercent denies only for this share of the subjects, always the same ones, and is shadow for the others; 0
	// means all.
	EnforcePercent int
	// OnStoreFailure says what happens while the store does not answer.
	OnStoreFailure OnStoreFailure
	// Strict rules are decided by the store alone, never from what a node knows or holds in advance.
	Strict bool
	// Critical requests are the last to be turned away when there is not enough for all.
	Critical bool
	// Expose says whether clients are shown the rule's limits in headers.
	Expose Expose
	// Meter has what each subject uses added up by the day, by whoever keeps accounts: LimitDecision.Metered tells them.
	Meter bool
}

// Global is the By of a rule with one counter for all requests.
var Global = []string{}

// Plan is a set of limits: one without a name, or several by name, or both.
type Plan struct {
	Limit  Limit
	Limits map[string]Limit
}

// Match says which requests a rule is for. All that is given must hold.
type Match struct {
	// Path is a template: /users/{id} and /users/* match one segment, /users/** any number of them, none included.
	Path string
	// Method is an HTTP method.
	Method string
	// Host is a host without its port; *.example.com matches every name below example.com.
	Host string
	// Attributes are conditions on any attribute, path, method and host included.
	Attributes map[string]Pattern
	// IgnoreCase compares paths without regard to case. A rule that counts by path then counts them in lower case.
	IgnoreCase bool
}

// Pattern is a condition on one attribute. Values, Prefix and CIDR are alternatives: one of them must hold, if any is
// given. Values of path are templates, those of host may begin with "*.".
type Pattern struct {
	Values []string
	Prefix string
	CIDR   []netip.Prefix
	// Not denies these values, whatever else holds.
	Not []string
	// Presence asks whether the request has the attribute at all.
	Presence Presence
}

// Presence of an attribute. A pattern on values already asks for the attribute to be there.
type Presence uint8

// Whether an attribute must be there.
const (
	AnyPresence Presence = iota
	Present
	Absent
)

// OneOf is a pattern that holds for any of the values.
func OneOf(values ...string) Pattern { return Pattern{Values: values} }

// NoneOf is a pattern that holds unless the attribute has one of the values.
func NoneOf(values ...string) Pattern { return Pattern{Not: values} }

// HasPrefix is a pattern on how a value begins.
func HasPrefix(prefix string) Pattern { return Pattern{Prefix: prefix} }

// InCIDR is a pattern on addresses.
func InCIDR(networks ...netip.Prefix) Pattern { return Pattern{CIDR: networks} }

// IsPresent is a pattern that holds if the request has the attribute.
func IsPresent() Pattern { return Pattern{Presence: Present} }

// IsAbsent is a pattern that holds if the request lacks the attribute.
func IsAbsent() Pattern { return Pattern{Presence: Absent} }

// Condition is what Match cannot say. Package ruledoc makes it from a line of CEL.
type Condition struct {
	// Text is the condition as people wrote it.
	Text string
	// Attributes are the names of those that it reads.
	Attributes []string
	// Steps is how long Holds may take at most, as estimated by whoever made it: a step is some nanoseconds. 0 is not known.
	Steps int
	// Holds must be quick, free of side effects, and safe for use by many goroutines. It is asked about each reading of a
	// request, with that as its path and method (see OtherPath), and must not keep the attributes.
	Holds func(Attributes) bool
}

// String is the condition's text.
func (c Condition) String() string { return c.Text }

// OnMissing says what to do with a request that lacks an attribute that is counted by.
type OnMissing uint8

const (
	// ShareMissing counts all requests without the attribute together, apart from all others.
	ShareMissing OnMissing = iota
	// SkipMissing does not apply the rule.
	SkipMissing
	// DenyMissing denies the request.
	DenyMissing
)

// Mode says how much a rule may do.
type Mode uint8

const (
	// Enforce denies what exceeds a limit.
	Enforce Mode = iota
	// Shadow decides and counts, and denies nothing.
	Shadow
	// Off does nothing.
	Off
)

// OnStoreFailure says what a rule does while the store does not answer.
type OnStoreFailure uint8

const (
	// FailLocal goes on with this node's share of the limit, where package storewrap keeps one; without it, as FailAllow.
	FailLocal OnStoreFailure = iota
	// FailAllow lets requests pass.
	FailAllow
	// FailDeny denies them.
	FailDeny
)

// Expose says whether clients are shown a rule's limits. A request that a rule denies gets the numbers of its limit in any case,
// without the rule's name.
type Expose uint8

const (
	// ExposeAuto shows all but rules for everybody and rules in shadow.
	ExposeAuto Expose = iota
	// ExposeAlways shows the rule.
	ExposeAlways
	// ExposeNever hides it.
	ExposeNever
)

var (
	onMissingNames      = []string{"share", "skip", "deny"}
	modeNames           = []string{"enforce", "shadow", "off"}
	onStoreFailureNames = []string{"local", "allow", "deny"}
	exposeNames         = []string{"auto", "true", "false"}
)

// String is the word in rules: "share".
func (o OnMissing) String() string { return nameOf(onMissingNames, o) }

// String is the word in rules: "enforce".
func (m Mode) String() string { return nameOf(modeNames, m) }

// String is the word in rules: "local".
func (o OnStoreFailure) String() string { return nameOf(onStoreFailureNames, o) }

// String is "auto", "true" or "false".
func (e Expose) String() string { return nameOf(exposeNames, e) }

func nameOf[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}
