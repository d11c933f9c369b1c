package headgate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of names. They appear in headers and metrics.
const (
	maxID   = 128
	maxName = 64
)

// compiledRule is a rule made ready.
type compiledRule struct {
	Rule
	conditions []condition
	by         int // index into the set's subjectBy
	limits     []compiledLimit
	mostAsked  Limit  // the rule's limit with the numbers of MaxCallerLimit
	salt       uint64 // tells this rule's share of subjects from another's
	exception  uint64 // tells this rule's exemptions from another's
}

// compiledLimit is one limit of a rule with all that may stand in its place.
type compiledLimit struct {
	name      string
	limit     Limit
	tiers     map[string]Limit
	counters  [len(algorithmNames)]Counter
	exception uint64 // tells this limit's overrides from another's

	candidate         Limit
	hasCandidate      bool
	candidateCounters [len(algorithmNames)]Counter
}

// problem is what is wrong with a rule, and where.
type problem struct {
	path []string
	text string
}

// compile fills in r from rule and returns what is wrong with it.
func (s *RuleSet) compile(r *compiledRule, rule Rule) []problem {
	r.Rule = rule
	var problems []problem
	bad := func(path ...string) func(string, ...any) {
		return func(format string, args ...any) {
			problems = append(problems, problem{path, fmt.Sprintf(format, args...)})
		}
	}
	if rule.ID == "" {
		bad()("has no id: counters, headers and logs need one")
	} else if text := checkName(rule.ID, maxID, ":/"); text != "" {
		bad("id")("%s", text)
	}
	problems = append(problems, s.compileMatch(r)...)
	s.compileBy(r, bad("by"))
	problems = append(problems, r.compileLimits()...)
	r.compileMaxCallerLimit(bad("max_caller_limit"))
	rule.checkCost(bad("cost"))
	r.checkFits(bad("cost"))
	if w := r.weight(); w > MaxWeight {
		bad("limits")("weigh %d together, and a request is charged on at most %d in one step (%s): make several rules of it", w, MaxWeight, weights)
	}
	rule.checkRest(bad)
	r.salt = fold(hashParts("enforce", rule.ID))
	r.exception = exceptionOf(rule.ID, "")
	return problems
}

func (s *RuleSet) compileMatch(r *compiledRule) []problem {
	patterns, problems := r.Match.conditions()
	for _, name := range slices.Sorted(maps.Keys(patterns)) {
		c, wrong := newCondition(name, s.slots.of(name), patterns[name], r.Match.IgnoreCase)
		r.conditions = append(r.conditions, c)
		problems = append(problems, wrong...)
	}
	if r.When.Holds == nil && (r.When.Text != "" || r.When.Attributes != nil) {
		problems = append(problems, problem{[]string{"when"}, "a condition needs its function: set Holds"})
	}
	return problems
}

func (s *RuleSet) compileBy(r *compiledRule, bad func(string, ...any)) {
	if r.By == nil {
		bad("is missing: write by: [ip] to count each address, or by: [] for one counter for everybody")
	}
	names := slices.Sorted(slices.Values(r.By))
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			bad("names %s twice", quote(name))
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

// compileLimits brings the limits together with what tiers and the candidate put in their place.
func (r *compiledRule) compileLimits() []problem {
	var problems []problem
	own, wrong := limitsOf(r.Limit, r.Limits)
	problems = append(problems, wrong...)
	if len(own) == 0 {
		problems = append(problems, problem{nil, "has no limit: write limit: 10/minute, or limits with a name for each"})
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
		for _, p := range wrong {
			problems = append(problems, problem{slices.Concat(where, p.path), p.text})
		}
		for name, limit := range limits {
			i := slices.IndexFunc(r.limits, func(l compiledLimit) bool { return l.name == name })
			if i < 0 {
				problems = append(problems, problem{slices.Concat(where, limitPath(name)), r.lacks(name)})
				continue
			}
			put(&r.limits[i], limit)
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		where := []string{"tiers", tier}
		if tier == "" {
			problems = append(problems, problem{where, "a tier needs a name"})
		}
		if plan := r.Tiers[tier]; plan.Limit == (Limit{}) && len(plan.Limits) == 0 {
			problems = append(problems, problem{where, "has no limit: write " + tier + ": 100/minute"})
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
		bad("a caller brings one limit, and the rule has %d: make a rule of each", len(r.limits))
	case r.limits[0].limit.Calendar != NoCalendar:
		bad("a caller's limit is so many in a span of time, and the rule's is by the calendar: write a rate")
	default:
		r.mostAsked = r.limits[0].limit.withRate(r.MaxCallerLimit.Count, r.MaxCallerLimit.Window)
		if err := r.mostAsked.Validate(); err != nil {
			bad("%v", err)
		}
	}
}

// callerLimit is what a caller gets who asks for a limit: no more than the most that the rule allows in the span of that,
// and the rule's own if what is asked for cannot be counted. A count of 0 is a wish, too: it denies everything.
func (r *compiledRule) callerLimit(asked *Limit) Limit {
	most := &r.mostAsked
	switch l := r.limits[0].limit.withRate(asked.Count, asked.Window); {
	case asked.Count > most.Count || !atMost(asked.Count, int64(most.Window), most.Count, int64(asked.Window)):
		return *most
	case asked.Count > 0 && l.validate() != nil:
		return r.limits[0].limit
	default:
		return l
	}
}

func (r *compiledRule) lacks(name string) string {
	var names []string
	for _, l := range r.limits {
		if l.name != "" {
			names = append(names, l.name)
		}
	}
	switch {
	case name == "":
		return "the rule has no limit without a name for this to replace: write limits with one of its names: " + strings.Join(names, ", ")
	case len(names) == 0:
		return "the rule has no limit of this name for this to replace: write limit, without a name"
	}
	return "the rule has no limit of this name for this to replace; it has " + strings.Join(names, ", ")
}

// limitsOf are a plan's limits by name, the one without under "".
func limitsOf(limit Limit, named map[string]Limit) (map[string]Limit, []problem) {
	var problems []problem
	all := make(map[string]Limit, len(named)+1)
	for name, l := range named {
		if name == "" {
			problems = append(problems, problem{[]string{"limits"}, "a limit here needs a name"})
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

func limitPath(name string) []string {
	if name == "" {
		return []string{"limit"}
	}
	return []string{"limits", name}
}

// checkFits denies a cost that no request could ever pay.
func (r *compiledRule) checkFits(bad func(string, ...any)) {
	for i := range r.limits {
		l := &r.limits[i]
		for _, limit := range append(slices.Collect(maps.Values(l.tiers)), l.limit) {
			if most := limit.capacity(); most > 0 && r.Cost.Default > most && limit.Algorithm != LeakyBucket {
				bad("a request costs %d, and %s holds %d at once: none could ever pass", r.Cost.Default, limit, most)
				return
			}
		}
	}
}

// always reports whether every request is charged by the rule, whatever its attributes.
func (r *compiledRule) always() bool {
	return r.Mode != Off && len(r.conditions) == 0 && r.When.Holds == nil && r.Priority == 0
}

func (r *Rule) checkRest(bad func(...string) func(string, ...any)) {
	if r.Priority < 0 {
		bad("priority")("is %d: write 0 for none, or more for higher", r.Priority)
	}
	switch {
	case r.EnforcePercent < 0 || r.EnforcePercent > 100:
		bad("enforce_percent")("is %d: write 1 to 100, or mode: shadow for none", r.EnforcePercent)
	case r.EnforcePercent > 0 && r.By != nil && len(r.By) == 0:
		bad("enforce_percent")("picks subjects, and with by: [] there is only one: use mode: shadow first, then enforce")
	}
	if r.Overdraw && (r.shapes() || r.Candidate.Limit != (Limit{}) || len(r.Candidate.Limits) > 0) {
		bad("overdraw")("does not go with a leaky_bucket or a candidate: remove one of them")
	}
	if r.MaxDelay < 0 {
		bad("max_delay")("is negative")
	}
	if r.MaxDelay > 0 && !r.shapes() {
		bad("max_delay")("is how long a leaky_bucket may hold a request, and the rule has none: add algorithm: leaky_bucket")
	}
	for _, e := range []struct {
		key    string
		value  uint8
		values []string
	}{
		{"mode", uint8(r.Mode), modeNames},
		{"on_missing", uint8(r.OnMissing), onMissingNames},
		{"on_store_failure", uint8(r.OnStoreFailure), onStoreFailureNames},
		{"expose", uint8(r.Expose), exposeNames},
	} {
		if int(e.value) >= len(e.values) {
			bad(e.key)("there is no %d", e.value)
		}
	}
}

// shapes is true if any limit may make requests wait.
func (r *Rule) shapes() bool {
	plans := append(slices.Collect(maps.Values(r.Tiers)), r.Candidate, Plan{Limit: r.Limit, Limits: r.Limits})
	for _, p := range plans {
		if p.Limit.Algorithm == LeakyBucket {
			return true
		}
		for _, l := range p.Limits {
			if l.Algorithm == LeakyBucket {
				return true
			}
		}
	}
	return false
}

// checkName says what is wrong with a name that appears in headers, or returns "".
func checkName(name string, most int, besides string) string {
	if len(name) > most {
		return "is longer than " + strconv.Itoa(most) + " characters"
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		case strings.ContainsRune(besides, c):
		default:
			return fmt.Sprintf("has %q in it: use letters, digits and -_.%s", c, besides)
		}
	}
	return ""
}

// matches is true if all conditions hold in the present reading.
func (r *compiledRule) matches(v *view) bool {
	if r.Mode == Off {
		return false
	}
	for i := range r.conditions {
		if !r.conditions[i].holds(v) {
			return false
		}
	}
	return r.When.Holds == nil || r.When.Holds(v.inReading())
}

// superior is the index in found of a rule that displaces found[i], or -1.
func (s *RuleSet) superior(found []int32, i int) int {
	r := &s.rules[found[i]]
	if r.Priority == 0 {
		return -1
	}
	for j, n := range found {
		if other := &s.rules[n]; other.by == r.by && other.Priority > r.Priority {
			return j
		}
	}
	return -1
}
