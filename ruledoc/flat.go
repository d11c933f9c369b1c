package ruledoc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// Flat is a rule with one limit in a flat form without lists and conditions, which suits tables and many programs. Scope
// selects the attributes to count by. TenantID, HTTPMethod, PathPattern and Tier select requests; empty selects all.
//
//	{"name": "default_per_key", "scope": "global", "maxRequests": 100, "windowSeconds": 60}
type Flat struct {
	// Name is the rule's ID.
	Name string `json:"name"`
	// Scope is global (counts by client), tenant (by tenant and client) or endpoint (by client, path and method).
	Scope      string `json:"scope"`
	TenantID   string `json:"tenantId,omitempty"`
	HTTPMethod string `json:"httpMethod,omitempty"`
	// PathPattern is a path template as in rules: /users/{id} and /users/* match one segment, /users/** the rest.
	PathPattern string `json:"pathPattern,omitempty"`
	Tier        string `json:"tier,omitempty"`
	// Algorithm is any name of an algorithm in rules; empty means token_bucket.
	Algorithm   string `json:"algorithm,omitempty"`
	MaxRequests int64  `json:"maxRequests"`
	// WindowSeconds may have up to three decimals.
	WindowSeconds float64 `json:"windowSeconds"`
	// BurstCapacity is the burst of a token_bucket; 0 means MaxRequests.
	BurstCapacity int64 `json:"burstCapacity,omitempty"`
	Priority      int   `json:"priority"`
	// Enabled is false for a rule that is stored but not active. Rule ignores it: the caller decides which rules to apply.
	Enabled bool `json:"enabled"`
}

var flatKeys = newObject(
	nonEmptyField("name", "the rule's `id`", func(f *Flat) *string { return &f.Name }).withDefault("required"),
	field[Flat]{
		key: "scope", unset: "required",
		doc: "what is counted: `global` per client, `tenant` per tenant and client, `endpoint` per client, path and method",
		read: func(d *decoder, n *node, key string, f *Flat) {
			if i := d.Enum(n, key, scopeNames); i >= 0 {
				f.Scope = scopeNames[i]
			}
		},
	},
	nonEmptyField("tenantId", "tenant that the rule applies to", func(f *Flat) *string { return &f.TenantID }),
	nonEmptyField("httpMethod", "HTTP method that the rule applies to", func(f *Flat) *string { return &f.HTTPMethod }),
	nonEmptyField("pathPattern", "path template: `/users/{id}`, `/users/*`, `/users/**`", func(f *Flat) *string { return &f.PathPattern }),
	nonEmptyField("tier", "tier that the rule applies to", func(f *Flat) *string { return &f.Tier }),
	field[Flat]{
		key: "algorithm", doc: "algorithm, by any of its names", unset: "`token_bucket`",
		read: func(d *decoder, n *node, key string, f *Flat) {
			if n.Kind == yamldoc.Text && n.Text == headgate.Concurrency.String() {
				d.Bad(n, "%s: the flat form has no concurrency limits: write a rule with limit: {concurrent: 20}", key)
			} else if d.algorithm(n, key) != nil {
				f.Algorithm = n.Text
			}
		},
	},
	intField("maxRequests", "count of the limit", 1, "", func(f *Flat) *int64 { return &f.MaxRequests }).withDefault("required"),
	field[Flat]{
		key: "windowSeconds", doc: "window of the limit in seconds, with at most three decimals", unset: "required",
		read: func(d *decoder, n *node, key string, f *Flat) { f.WindowSeconds = d.seconds(n, key) },
	},
	intField("burstCapacity", "burst of a `token_bucket`", 1, fmt.Sprintf("must be 1 to %d; without it, burst is maxRequests", headgate.MaxCost),
		func(f *Flat) *int64 { return &f.BurstCapacity }).withDefault("`maxRequests`"),
	intField("priority", "as in rules", 0, "", func(f *Flat) *int { return &f.Priority }).withDefault("`0`"),
	boolField("enabled", "`false` deactivates the rule but keeps it and its history", func(f *Flat) *bool { return &f.Enabled }).withDefault("`true`"),
)

// nonEmptyField returns a field for a text that must not be empty: an empty text is more likely a mistake than a wildcard.
func nonEmptyField(key, doc string, of func(*Flat) *string) field[Flat] {
	return field[Flat]{key: key, doc: doc, unset: "all", read: func(d *decoder, n *node, key string, f *Flat) {
		s, ok := d.Text(n, key)
		if ok && s == "" {
			d.Bad(n, "%s: must not be empty: write a value, or remove the key", key)
		}
		*of(f) = s
	}}
}

// scopeBy is the attributes that each scope counts by.
var (
	scopeNames = []string{"global", "tenant", "endpoint"}
	scopeBy    = [][]string{{"client"}, {"tenant", "client"}, {"client", "path", "method"}}
)

// ParseFlat parses and validates a flat rule in JSON or YAML. Errors are of type Errors.
func ParseFlat(data []byte) (Flat, error) {
	r := newReader(source{Name: "rule", Data: data})
	f := Flat{Enabled: true}
	r.readOne("no rule found: write its keys and values (name, scope, maxRequests …)", func(d *decoder, n *node) {
		d.In = textAt(n, "name")
		flatKeys.read(d, n, "a flat rule", &f)
		if n.Kind != yamldoc.Mapping {
			return
		}
		reported := reportedKeysOf(n, r.report.Found())
		_, problems := f.rule()
		for _, p := range problems {
			if !reported[p.field] {
				d.Bad(n.Find([]string{p.field}), "%s", p.text)
			}
		}
	})
	if err := r.errors(); err != nil {
		return Flat{}, err
	}
	return f, nil
}

// reportedKeysOf returns the keys that already have errors, and the keys that they may be misspellings of.
func reportedKeysOf(n *node, found []yamldoc.Located) map[string]bool {
	reported := map[string]bool{}
	for _, e := range n.Entries {
		if slices.ContainsFunc(found, func(at yamldoc.Located) bool {
			return comparePosition(e.Key, at.Error) == 0 || comparePosition(e.Value, at.Error) == 0
		}) {
			reported[e.Key.Text] = true
			reported[yamldoc.Nearest(e.Key.Text, flatKeys.keys())] = true
		}
	}
	return reported
}

func (d *decoder) seconds(n *node, key string) float64 {
	v, err := strconv.ParseFloat(n.Text, 64)
	switch {
	case n.Kind == yamldoc.Text && err == nil:
		d.Bad(n, "%s: must be a number: write %s without quotes", key, n.Text)
	case n.Kind != yamldoc.Number || err != nil:
		d.Bad(n, "%s: must be a number of seconds, not %s", key, n.Describe())
	}
	return v
}

// flatProblem is a problem of one field of the flat form.
type flatProblem struct{ field, text string }

// Rule converts the flat form to a rule. Errors name the fields of the flat form.
func (f Flat) Rule() (headgate.Rule, error) {
	rule, problems := f.rule()
	if len(problems) == 0 {
		return rule, nil
	}
	list := make([]error, len(problems))
	for i, p := range problems {
		list[i] = fmt.Errorf("rule %q: %s", f.Name, p.text)
	}
	return headgate.Rule{}, errors.Join(list...)
}

func (f Flat) rule() (headgate.Rule, []flatProblem) {
	rule, problems := f.unchecked()
	if len(problems) == 0 {
		problems = flatProblems(rule)
	}
	return rule, problems
}

// unchecked returns the rule without compiling it.
func (f Flat) unchecked() (rule headgate.Rule, problems []flatProblem) {
	bad := func(field, format string, args ...any) {
		problems = append(problems, flatProblem{field, field + ": " + fmt.Sprintf(format, args...)})
	}
	if f.Name == "" {
		bad("name", "required: counters, headers and logs need a name")
	}
	scope := slices.Index(scopeNames, f.Scope)
	if scope < 0 {
		bad("scope", "missing or invalid: must be global (counts by client), tenant (by tenant and client) or endpoint "+
			"(by client, path and method)")
	}
	algorithm, known := algorithmOf(f.Algorithm)
	if !known {
		bad("algorithm", "must be one of %s, not %q", strings.Join(algorithmNames, ", "), yamldoc.Shorten(f.Algorithm))
	} else if algorithm != headgate.TokenBucket && f.BurstCapacity != 0 {
		bad("burstCapacity", "%s has no burst: remove it, or use token_bucket", f.Algorithm)
	}
	if f.MaxRequests == 0 {
		bad("maxRequests", "missing or 0: write the number of requests that are allowed per windowSeconds")
	}
	milliseconds := math.Round(f.WindowSeconds * 1000)
	whole := math.Abs(f.WindowSeconds*1000-milliseconds) < 0.01 // false for NaN and infinity
	if f.WindowSeconds == 0 {
		bad("windowSeconds", "missing or 0: write 60 for a minute, 3600 for an hour")
	} else if maxMillis := (366 * day).Milliseconds(); !whole || milliseconds < 1 || milliseconds > float64(maxMillis) {
		problems = append(problems, flatProblem{"windowSeconds", fmt.Sprintf(
			"windowSeconds %s: must be 0.001 to %d (366 days), with at most three decimals",
			strconv.FormatFloat(f.WindowSeconds, 'f', -1, 64), maxMillis/1000)})
	}
	if len(problems) > 0 {
		return headgate.Rule{}, problems
	}
	rule = headgate.Rule{
		ID:       f.Name,
		Match:    headgate.Match{Path: f.PathPattern, Method: f.HTTPMethod, Attributes: map[string]headgate.Pattern{}},
		By:       slices.Clone(scopeBy[scope]),
		Limit:    headgate.Per(f.MaxRequests, time.Duration(milliseconds)*time.Millisecond),
		Priority: f.Priority,
	}
	rule.Limit.Algorithm, rule.Limit.Burst = algorithm, f.BurstCapacity
	for name, value := range map[string]string{"tenant": f.TenantID, "tier": f.Tier} {
		if value != "" {
			rule.Match.Attributes[name] = headgate.OneOf(value)
		}
	}
	return rule, nil
}

// flatProblems compiles a rule and returns its problems by field of the flat form.
func flatProblems(rule headgate.Rule) []flatProblem {
	_, err := headgate.Compile(rule)
	if err == nil {
		return nil
	}
	var problems []flatProblem
	for _, one := range unjoin(err) {
		field, problem := "name", one.Error()
		if ruleErr, ok := errors.AsType[*headgate.RuleError](one); ok {
			field, problem = flatField(ruleErr), ruleErr.Problem
		}
		problems = append(problems, flatProblem{field, describeProblem(field, problem)})
	}
	return problems
}

// flatField returns the field of the flat form that a rule's error is about.
func flatField(ruleErr *headgate.RuleError) string {
	path := strings.Join(ruleErr.Path, ".")
	if path == "limit" && strings.Contains(ruleErr.Problem, "burst") {
		return "burstCapacity"
	}
	fields := map[string]string{
		"match.tenant": "tenantId", "match.method": "httpMethod", "match.path": "pathPattern", "match.tier": "tier",
		"limit": "maxRequests", "priority": "priority",
	}
	return cmp.Or(fields[path], "name")
}

// algorithmOf returns the algorithm with this name or alias.
func algorithmOf(word string) (a headgate.Algorithm, ok bool) {
	if a, ok = algorithmAliases[word]; ok || word == "" {
		return a, true
	}
	i := slices.Index(algorithmNames, word)
	return headgate.Algorithm(max(i, 0)), i >= 0
}

// FlatOf returns the flat form of a rule. If the flat form cannot express the whole rule, it holds the parts that it can: the
// rule's first limit and the closest scope, so that tables can be searched by it.
func FlatOf(r headgate.Rule) Flat {
	limit, algorithm := firstFlatLimit(r), ""
	if limit != (headgate.Limit{}) {
		algorithm = limit.Algorithm.String()
	}
	return Flat{
		Name: r.ID, Scope: scopeOf(r.By), Priority: r.Priority, Enabled: true,
		TenantID: onlyValue(r.Match, "tenant"), HTTPMethod: cmp.Or(r.Match.Method, onlyValue(r.Match, "method")),
		PathPattern: cmp.Or(r.Match.Path, onlyValue(r.Match, "path")), Tier: onlyValue(r.Match, "tier"),
		Algorithm: algorithm, MaxRequests: limit.Count, WindowSeconds: limit.Window.Seconds(),
		BurstCapacity: limit.Burst,
	}
}

// firstFlatLimit returns the first limit of a rule that is not a concurrency limit, which the flat form does not have.
func firstFlatLimit(r headgate.Rule) headgate.Limit {
	if r.Limit.Count > 0 && r.Limit.Algorithm != headgate.Concurrency {
		return r.Limit
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		if l := r.Limits[name]; l.Algorithm != headgate.Concurrency {
			return l
		}
	}
	return headgate.Limit{}
}

// scopeOf returns the scope that is closest to the attributes of By.
func scopeOf(by []string) string {
	switch {
	case slices.Contains(by, "path"), slices.Contains(by, "route"), slices.Contains(by, "method"):
		return "endpoint"
	case slices.Contains(by, "tenant"):
		return "tenant"
	}
	return "global"
}

// onlyValue returns the single value that an attribute must have, or "".
func onlyValue(m headgate.Match, name string) string {
	p := m.Attributes[name]
	if len(p.Values) == 1 && p.Prefix == "" && len(p.CIDR) == 0 && len(p.Not) == 0 {
		return p.Values[0]
	}
	return ""
}

// Equal reports whether two flat rules mean the same: algorithms may have several names, and the default burst may be
// explicit.
func (f Flat) Equal(other Flat) bool { return normalize(f) == normalize(other) }

// normalize replaces algorithm aliases and removes a default burst.
func normalize(f Flat) Flat {
	if a, ok := algorithmOf(f.Algorithm); ok {
		f.Algorithm = a.String()
	}
	if f.BurstCapacity == f.MaxRequests {
		f.BurstCapacity = 0
	}
	return f
}
