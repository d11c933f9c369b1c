package headgate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Maximum lengths of names, which appear in headers and metrics.
const (
	maxID   = 128
	maxName = 64
)

// compiledRule is a validated rule, prepared for matching and charging.
type compiledRule struct {
	Rule
	conditions []condition
	costs      []compiledCost
	counter    int32 // index of the rule whose counters it charges, usually its own
	off        bool  // whether the mode of either rule is Off
	priority   int
	by         int // index into the set's subjectBy
	limits     []compiledLimit
	maxCaller  Limit  // the rule's limit with the numbers of MaxCallerLimit
	salt       uint64 // selects the rule's subjects of EnforcePercent
	exception  uint64 // identifies the rule's exemptions
}

// compiledLimit is one limit of a rule with its tiers and its candidate.
type compiledLimit struct {
	name      string
	limit     Limit
	tiers     map[string]Limit
	counters  [len(algorithmNames)]Counter
	exception uint64 // identifies the limit's overrides

	candidate         Limit
	hasCandidate      bool
	candidateCounters [len(algorithmNames)]Counter
}

// problem is a mistake in a rule and the path to it.
type problem struct {
	path []string
	text string
}

// within returns the mistakes in a part of a rule with the path to that part.
func within(where []string, problems []problem) []problem {
	for i := range problems {
		problems[i].path = slices.Concat(where, problems[i].path)
	}
	return problems
}

// compile fills in r from rule and returns the mistakes in it.
func (s *RuleSet) compile(r *compiledRule, rule Rule) []problem {
	r.Rule = rule
	var problems []problem
	bad := func(path ...string) func(string, ...any) {
		return func(format string, args ...any) {
			problems = append(problems, problem{path, fmt.Sprintf(format, args...)})
		}
	}
	if rule.ID == "" {
		bad()("id: required: it names the rule in counters, headers and logs")
	} else if text := checkName(rule.ID, maxID, ":/"); text != "" {
		bad("id")("%s", text)
	}
	problems = append(problems, s.compileMatch(r)...)
	if rule.Counter == "" {
		s.compileBy(r, bad("by"))
		problems = append(problems, r.compileLimits()...)
		r.compileMaxCallerLimit(bad("max_caller_limit"))
	}
	rule.checkCost(bad("cost"))
	problems = append(problems, s.compileCosts(r)...)
	if rule.Counter == "" {
		r.checkFits(r.limits, bad)
		if w := r.weight(); w > MaxWeight {
			bad("limits")("weight %d: must be at most %d, which a store decides in one step (%s): split the rule", w, MaxWeight, weights)
		}
		rule.checkRest(bad)
	} else {
		rule.checkBorrowed(bad)
	}
	r.salt = fold(hashParts("enforce", rule.ID))
	r.exception = exceptionOf(rule.ID, "")
	return problems
}

// compileConditions compiles the conditions of a match.
func (s *RuleSet) compileConditions(m *Match) ([]condition, []problem) {
	patterns, problems := m.conditions()
	var conditions []condition
	for _, name := range slices.Sorted(maps.Keys(patterns)) {
		c, wrong := newCondition(name, s.slots.of(name), patterns[name], m.IgnoreCase)
		conditions = append(conditions, c)
		problems = append(problems, wrong...)
	}
	return conditions, problems
}

// compileCosts compiles the cost table.
func (s *RuleSet) compileCosts(r *compiledRule) []problem {
	var problems []problem
	for i := range r.Costs {
		e, where := &r.Costs[i], []string{"costs", strconv.Itoa(i)}
		conditions, wrong := s.compileConditions(&e.Match)
		problems = append(problems, within(where, wrong)...)
		if len(conditions) == 0 {
			problems = append(problems, problem{where, "match: required: write the cost of all other requests as cost"})
		}
		switch {
		case e.Cost == 0:
			problems = append(problems, problem{where, "cost: required: write how many units these requests take"})
		case e.Cost < 0 || e.Cost > MaxCost:
			problems = append(problems, problem{slices.Concat(where, []string{"cost"}), fmt.Sprintf("%d: must be 1 to %d", e.Cost, MaxCost)})
		}
		r.costs = append(r.costs, compiledCost{conditions, e.Cost})
	}
	return problems
}

func (s *RuleSet) compileMatch(r *compiledRule) []problem {
	conditions, problems := s.compileConditions(&r.Match)
	r.conditions = conditions
	if r.When.Holds == nil && (r.When.Text != "" || r.When.Attributes != nil) {
		problems = append(problems, problem{[]string{"when"}, "Holds: required"})
	}
	return problems
}

func (s *RuleSet) compileBy(r *compiledRule, bad func(string, ...any)) {
	if r.By == nil {
		bad("required: write by: [ip] to count by address, or by: [] for one counter for all requests")
	}
	names := slices.Sorted(slices.Values(r.By))
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			bad("duplicate attribute %s", quote(name))
		} else if text := checkAttribute(name); text != "" {
			bad("%s", text)
		}
	}
	r.by = slices.IndexFunc(s.by, func(b subjectBy) bool { return slices.Equal(b.names, names) })
	if r.by < 0 {
		r.by = len(s.by)
		s.by = append(s.by, newSubjectBy(names))
	}
}

// compileLimits combines the limits with the limits of tiers and the candidate that replace them.
func (r *compiledRule) compileLimits() []problem {
	var problems []problem
	own, wrong := limitsOf(r.Limit, r.Limits)
	problems = append(problems, wrong...)
	if len(own) == 0 {
		problems = append(problems, problem{nil, "limit: required: write limit: 10/minute, or limits with a name for each"})
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		l := compiledLimit{name: name, limit: own[name], tiers: map[string]Limit{}, exception: exceptionOf(r.ID, name)}
		for a := range l.counters {
			l.counters[a] = CounterOf(r.ID, name, Algorithm(a))
			l.candidateCounters[a] = CounterOf(r.ID, "candidate:"+name, Algorithm(a))
		}
		r.limits = append(r.limits, l)
	}
	replace := func(plan Plan, where []string, put func(*compiledLimit, Limit)) {
		limits, wrong := limitsOf(plan.Limit, plan.Limits)
		problems = append(problems, within(where, wrong)...)
		for name, limit := range limits {
			i := slices.IndexFunc(r.limits, func(l compiledLimit) bool { return l.name == name })
			if i < 0 {
				problems = append(problems, problem{slices.Concat(where, limitPath(name)), r.noSuchLimit(name)})
				continue
			}
			put(&r.limits[i], limit)
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		where := []string{"tiers", tier}
		if tier == "" {
			problems = append(problems, problem{where, "tier: name required"})
		}
		if plan := r.Tiers[tier]; plan.Limit == (Limit{}) && len(plan.Limits) == 0 {
			problems = append(problems, problem{where, "limit: required: write " + tier + ": 100/minute"})
		}
		replace(r.Tiers[tier], where, func(l *compiledLimit, to Limit) { l.tiers[tier] = to })
	}
	replace(r.Candidate, []string{"candidate"}, func(l *compiledLimit, to Limit) { l.candidate, l.hasCandidate = to, true })
	return problems
}

func (r *compiledRule) compileMaxCallerLimit(bad func(string, ...any)) {
	switch {
	case r.MaxCallerLimit == (Limit{}):
	case len(r.limits) != 1:
		bad("replaces the only limit of a rule, but this rule has %d: split the rule", len(r.limits))
	case r.limits[0].limit.Calendar != NoCalendar:
		bad("must be a rate, but the rule's limit follows the calendar: write a rate in both")
	default:
		r.maxCaller = r.limits[0].limit.withRate(r.MaxCallerLimit.Count, r.MaxCallerLimit.Window)
		if err := r.maxCaller.Validate(); err != nil {
			bad("%v", err)
		}
	}
}

// callerLimit returns the limit for a caller that requested one: the requested limit, capped at the rule's MaxCallerLimit, or the
// rule's own limit if the requested one is invalid. A requested count of 0 is valid: it denies everything.
func (r *compiledRule) callerLimit(requested *Limit) Limit {
	maxCaller := &r.maxCaller
	switch l := r.limits[0].limit.withRate(requested.Count, requested.Window); {
	case requested.Count > maxCaller.Count || !mulLessEqual(requested.Count, int64(maxCaller.Window), maxCaller.Count, int64(requested.Window)):
		return *maxCaller
	case requested.Count > 0 && l.validate() != nil:
		return r.limits[0].limit
	default:
		return l
	}
}

// noSuchLimit returns the problem of a tier or candidate that replaces a limit that the rule does not have.
func (r *compiledRule) noSuchLimit(name string) string {
	var names []string
	for _, l := range r.limits {
		if l.name != "" {
			names = append(names, l.name)
		}
	}
	switch {
	case name == "":
		return "replaces a limit without a name, but the rule has none: write limits with one of its names: " + strings.Join(names, ", ")
	case len(names) == 0:
		return "replaces a limit of this name, but the rule has none: write limit, without a name"
	}
	return "replaces a limit of this name, but the rule has none: must be one of " + strings.Join(names, ", ")
}

// limitsOf returns a plan's limits by name, the limit without a name under "".
func limitsOf(limit Limit, named map[string]Limit) (map[string]Limit, []problem) {
	var problems []problem
	all := make(map[string]Limit, len(named)+1)
	for name, l := range named {
		if name == "" {
			problems = append(problems, problem{[]string{"limits"}, "limit: name required"})
		} else if text := checkName(name, maxName, ""); text != "" {
			problems = append(problems, problem{[]string{"limits", name}, text})
		}
		all[name] = l
	}
	if limit != (Limit{}) {
		all[""] = limit
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := all[name].Validate(); err != nil {
			problems = append(problems, problem{limitPath(name), err.Error()})
		}
	}
	return all, problems
}

// limitPath returns the path to a limit in a rule file.
func limitPath(name string) []string {
	if name == "" {
		return []string{"limit"}
	}
	return []string{"limits", name}
}

// checkFits rejects costs that no limit could ever grant.
func (r *compiledRule) checkFits(limits []compiledLimit, bad func(...string) func(string, ...any)) {
	fits := func(cost int64, path ...string) {
		for i := range limits {
			l := &limits[i]
			for _, limit := range append(slices.Collect(maps.Values(l.tiers)), l.limit) {
				if capacity := limit.capacity(); capacity > 0 && cost > capacity && limit.Algorithm != LeakyBucket {
					bad(path...)("%d: must be at most %d, the capacity of %s: otherwise every request is denied", cost, capacity, limit)
					return
				}
			}
		}
	}
	fits(r.Cost.Default, "cost")
	for i := range r.Costs {
		fits(r.Costs[i].Cost, "costs", strconv.Itoa(i), "cost")
	}
}

// allConditions returns the conditions of the rule and of its cost table.
func (r *compiledRule) allConditions() []condition {
	all := slices.Clone(r.conditions)
	for i := range r.costs {
		all = append(all, r.costs[i].conditions...)
	}
	return all
}

// always reports whether the rule charges every request, regardless of its attributes.
func (r *compiledRule) always() bool {
	return !r.off && len(r.conditions) == 0 && r.When.Holds == nil && r.priority == 0
}

// checkRest checks the fields of a rule that depend on no limit or match.
func (r *Rule) checkRest(bad func(...string) func(string, ...any)) {
	if r.Priority < 0 {
		bad("priority")("%d: must be 0 for none, or above 0", r.Priority)
	}
	switch {
	case r.EnforcePercent < 0 || r.EnforcePercent > 100:
		bad("enforce_percent")("%d: must be 1 to 100; write mode: shadow to enforce none", r.EnforcePercent)
	case r.EnforcePercent > 0 && r.By != nil && len(r.By) == 0:
		bad("enforce_percent")("selects subjects, but by: [] has only one: use mode: shadow first, then enforce")
	}
	if r.uses(Concurrency) {
		if r.Overdraw {
			bad("overdraw")("not supported with a concurrency limit, which counts requests in flight: remove one of them")
		}
		if r.MaxCallerLimit != (Limit{}) {
			bad("max_caller_limit")("not supported with a concurrency limit: remove one of them")
		}
	}
	if r.Overdraw && (r.uses(LeakyBucket) || r.Candidate.Limit != (Limit{}) || len(r.Candidate.Limits) > 0) {
		bad("overdraw")("not supported with a leaky_bucket or a candidate: remove one of them")
	}
	if r.MaxDelay < 0 {
		bad("max_delay")("%s: must not be negative", r.MaxDelay)
	}
	if r.MaxDelay > 0 && !r.uses(LeakyBucket) {
		bad("max_delay")("only a leaky_bucket delays requests, and the rule has none: add algorithm: leaky_bucket")
	}
	if r.Regions == HomeRegion && r.uses(Concurrency) {
		bad("regions")("home: not supported with a concurrency limit, whose units a node must renew in its own region: write each or shared")
	}
	for _, e := range []struct {
		key    string
		value  uint8
		values []string
	}{
		{"mode", uint8(r.Mode), modeNames},
		{"on_missing", uint8(r.OnMissing), onMissingNames},
		{"regions", uint8(r.Regions), regionsNames},
		{"on_store_failure", uint8(r.OnStoreFailure), onStoreFailureNames},
		{"on_hold_expiry", uint8(r.OnHoldExpiry), onHoldExpiryNames},
		{"expose", uint8(r.Expose), exposeNames},
	} {
		if int(e.value) >= len(e.values) {
			bad(e.key)("%d: must be 0 to %d", e.value, len(e.values)-1)
		}
	}
}

// uses reports whether a limit of the rule, of its tiers or of its candidate has an algorithm.
func (r *Rule) uses(a Algorithm) bool {
	plans := append(slices.Collect(maps.Values(r.Tiers)), r.Candidate, Plan{Limit: r.Limit, Limits: r.Limits})
	for _, p := range plans {
		if p.Limit.Algorithm == a {
			return true
		}
		for _, l := range p.Limits {
			if l.Algorithm == a {
				return true
			}
		}
	}
	return false
}

// checkName returns what is wrong with a name that appears in headers, or "". extra are the characters that it may have in
// addition to letters, digits and "-_.".
func checkName(name string, maxLen int, extra string) string {
	if len(name) > maxLen {
		return strconv.Itoa(len(name)) + " bytes: must be at most " + strconv.Itoa(maxLen)
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		case strings.ContainsRune(extra, c):
		default:
			return fmt.Sprintf("character %q: must be a letter, a digit or one of -_.%s", c, extra)
		}
	}
	return ""
}

// matches reports whether all conditions hold in the current reading.
func (r *compiledRule) matches(v *view) bool {
	if r.off {
		return false
	}
	return allHold(r.conditions, v) && (r.When.Holds == nil || r.When.Holds(v.readingAttributes()))
}

// superior returns the index in found of a rule that displaces found[i], or -1.
func (s *RuleSet) superior(found []int32, i int) int {
	r := &s.rules[found[i]]
	if r.priority == 0 {
		return -1
	}
	for j, n := range found {
		if other := &s.rules[n]; other.by == r.by && other.priority > r.priority {
			return j
		}
	}
	return -1
}
