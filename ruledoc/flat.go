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

// Flat is a rule with one limit in the flat form, which many programs and tables have: no lists, no conditions. Scope says
// what is counted by, TenantID, HTTPMethod, PathPattern and Tier which requests the rule is for; empty is all.
//
//	{"name": "default_per_key", "scope": "global", "maxRequests": 100, "windowSeconds": 60}
type Flat struct {
	// Name is the rule's ID.
	Name string `json:"name"`
	// Scope global counts by client, tenant by tenant and client, endpoint by client, path and method.
	Scope      string `json:"scope"`
	TenantID   string `json:"tenantId,omitempty"`
	HTTPMethod string `json:"httpMethod,omitempty"`
	// PathPattern is a template as in rules: /users/{id} and /users/* are one segment, /users/** the rest.
	PathPattern string `json:"pathPattern,omitempty"`
	Tier        string `json:"tier,omitempty"`
	// Algorithm is one of those of rules, by any of its names; empty is token_bucket.
	Algorithm   string `json:"algorithm,omitempty"`
	MaxRequests int64  `json:"maxRequests"`
	// WindowSeconds may have three decimals.
	WindowSeconds float64 `json:"windowSeconds"`
	// BurstCapacity is of a token_bucket; 0 means MaxRequests.
	BurstCapacity int64 `json:"burstCapacity,omitempty"`
	Priority      int   `json:"priority"`
	// Enabled is false for a rule that is kept and not in force. It is for whoever keeps it: Rule does not look at it.
	Enabled bool `json:"enabled"`
}

var flatKeys = objectOf(
	filledField("name", "the rule's `id`", func(f *Flat) *string { return &f.Name }).or("must be given"),
	field[Flat]{
		key: "scope", unset: "must be given",
		doc: "who is counted: `global` each client, `tenant` each client of each tenant, `endpoint` each client on each path and method",
		read: func(d *decoder, n *node, key string, f *Flat) {
			if i := d.Enum(n, key, scopeWords); i >= 0 {
				f.Scope = scopeWords[i]
			}
		},
	},
	filledField("tenantId", "the tenant whose requests the rule is for", func(f *Flat) *string { return &f.TenantID }),
	filledField("httpMethod", "the method", func(f *Flat) *string { return &f.HTTPMethod }),
	filledField("pathPattern", "a template: `/users/{id}`, `/users/*`, `/users/**`", func(f *Flat) *string { return &f.PathPattern }),
	filledField("tier", "the tier", func(f *Flat) *string { return &f.Tier }),
	field[Flat]{
		key: "algorithm", doc: "by any of its names", unset: "`token_bucket`",
		read: func(d *decoder, n *node, key string, f *Flat) {
			if d.algorithm(n, key) != nil {
				f.Algorithm = n.Text
			}
		},
	},
	wholeField("maxRequests", "the limit's number", 1, "", func(f *Flat) *int64 { return &f.MaxRequests }).or("must be given"),
	field[Flat]{
		key: "windowSeconds", doc: "the limit's window, with three decimals at most", unset: "must be given",
		read: func(d *decoder, n *node, key string, f *Flat) { f.WindowSeconds = d.seconds(n, key) },
	},
	wholeField("burstCapacity", "of a `token_bucket`", 1, "write 1 or more; without it the burst is maxRequests",
		func(f *Flat) *int64 { return &f.BurstCapacity }).or("`maxRequests`"),
	wholeField("priority", "as in rules", 0, "", func(f *Flat) *int { return &f.Priority }).or("`0`"),
	yesNoField("enabled", "`false` keeps the rule and its history, and it is not in force", func(f *Flat) *bool { return &f.Enabled }).or("`true`"),
)

// filledField is a text that is not empty: an empty one would rather be a mistake than mean everything.
func filledField(key, doc string, of func(*Flat) *string) field[Flat] {
	return field[Flat]{key: key, doc: doc, unset: "all", read: func(d *decoder, n *node, key string, f *Flat) {
		s, ok := d.Text(n, key)
		if ok && s == "" {
			d.Bad(n, "%s is empty: write it, or remove the key", key)
		}
		*of(f) = s
	}}
}

// scopeBy is what each scope counts by.
var (
	scopeWords = []string{"global", "tenant", "endpoint"}
	scopeBy    = [][]string{{"client"}, {"tenant", "client"}, {"client", "path", "method"}}
)

// ParseFlat reads a rule in the flat form, in JSON or YAML, and checks that it is a rule. Its error is an Errors.
func ParseFlat(data []byte) (Flat, error) {
	r := newReader(source{Name: "rule", Data: data})
	f := Flat{Enabled: true}
	r.readOne("there is no rule here: write its keys and values (name, scope, maxRequests …)", func(d *decoder, n *node) {
		d.In = textAt(n, "name")
		flatKeys.read(d, n, "a flat rule", &f)
		if n.Kind != yamldoc.Mapping {
			return
		}
		told := toldIn(n, r.report.Found())
		_, problems := f.rule()
		for _, p := range problems {
			if !told[p.field] {
				d.Bad(n.Find([]string{p.field}), "%s", p.text)
			}
		}
	})
	if err := r.errors(); err != nil {
		return Flat{}, err
	}
	return f, nil
}

// toldIn are the keys about which something was said already, and those that may have been meant.
func toldIn(n *node, found []yamldoc.Located) map[string]bool {
	told := map[string]bool{}
	for _, e := range n.Entries {
		if slices.ContainsFunc(found, func(at yamldoc.Located) bool {
			return comparePlace(e.Key, at.Error) == 0 || comparePlace(e.Value, at.Error) == 0
		}) {
			told[e.Key.Text] = true
			told[yamldoc.Nearest(e.Key.Text, flatKeys.keys())] = true
		}
	}
	return told
}

func (d *decoder) seconds(n *node, key string) float64 {
	v, err := strconv.ParseFloat(n.Text, 64)
	switch {
	case n.Kind == yamldoc.Text && err == nil:
		d.Bad(n, "%s wants a number: write %s, without quotes", key, n.Text)
	case n.Kind != yamldoc.Number || err != nil:
		d.Bad(n, "%s wants a number of seconds, not %s", key, n.Describe())
	}
	return v
}

// flatProblem is what is wrong with a field of the flat form.
type flatProblem struct{ field, text string }

// Rule is the rule that the flat form stands for. The error says what is wrong in the words of the flat form.
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

// unchecked is the rule if there is one, before it is compiled.
func (f Flat) unchecked() (rule headgate.Rule, problems []flatProblem) {
	bad := func(field, format string, args ...any) {
		problems = append(problems, flatProblem{field, field + fmt.Sprintf(format, args...)})
	}
	if f.Name == "" {
		bad("name", " is missing: counters, headers and logs need one")
	}
	scope := slices.Index(scopeWords, f.Scope)
	if scope < 0 {
		bad("scope", " is missing or wrong: write global (counted by client), tenant (by tenant and client) or endpoint "+
			"(by client, path and method)")
	}
	algorithm, known := algorithmOf(f.Algorithm)
	if !known {
		bad("algorithm", " is one of %s, not %q", strings.Join(algorithmWords, ", "), yamldoc.Shorten(f.Algorithm))
	} else if algorithm != headgate.TokenBucket && f.BurstCapacity != 0 {
		bad("burstCapacity", " belongs to token_bucket, and %s has none: remove it, or choose token_bucket", f.Algorithm)
	}
	if f.MaxRequests == 0 {
		bad("maxRequests", " is missing or 0: write how many requests may pass in windowSeconds")
	}
	milliseconds := math.Round(f.WindowSeconds * 1000)
	whole := math.Abs(f.WindowSeconds*1000-milliseconds) < 0.01 // which NaN and infinity are not
	if f.WindowSeconds == 0 {
		bad("windowSeconds", " is missing or 0: write 60 for a minute, 3600 for an hour")
	} else if most := (366 * day).Milliseconds(); !whole || milliseconds < 1 || milliseconds > float64(most) {
		bad("windowSeconds", " is %s: write 0.001 to %d (366 days), with three decimals at most",
			strconv.FormatFloat(f.WindowSeconds, 'f', -1, 64), most/1000)
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

// flatProblems are what package headgate finds wrong with a rule, by the fields that it comes from.
func flatProblems(rule headgate.Rule) []flatProblem {
	_, err := headgate.Compile(rule)
	if err == nil {
		return nil
	}
	var problems []flatProblem
	for _, one := range unjoin(err) {
		field, problem := "name", one.Error()
		if wrong, ok := errors.AsType[*headgate.RuleError](one); ok {
			field, problem = flatField(wrong), wrong.Problem
		}
		problems = append(problems, flatProblem{field, sentence(field, problem)})
	}
	return problems
}

func flatField(wrong *headgate.RuleError) string {
	path := strings.Join(wrong.Path, ".")
	if path == "limit" && strings.Contains(wrong.Problem, "burst") {
		return "burstCapacity"
	}
	fields := map[string]string{
		"match.tenant": "tenantId", "match.method": "httpMethod", "match.path": "pathPattern", "match.tier": "tier",
		"limit": "maxRequests", "priority": "priority",
	}
	return cmp.Or(fields[path], "name")
}

func algorithmOf(word string) (a headgate.Algorithm, ok bool) {
	if a, ok = otherAlgorithmWords[word]; ok || word == "" {
		return a, true
	}
	i := slices.Index(algorithmWords, word)
	return headgate.Algorithm(max(i, 0)), i >= 0
}

// FlatOf is the flat form of a rule. If the rule says more than that can, it is still true of the rule as far as it goes, so that
// tables can be searched by it: the rule's first limit, and by what it counts roughly.
func FlatOf(r headgate.Rule) Flat {
	limit := r.Limit
	if names := slices.Sorted(maps.Keys(r.Limits)); limit == (headgate.Limit{}) && len(names) > 0 {
		limit = r.Limits[names[0]]
	}
	return Flat{
		Name: r.ID, Scope: scopeOf(r.By), Priority: r.Priority, Enabled: true,
		TenantID: onlyValue(r.Match, "tenant"), HTTPMethod: cmp.Or(r.Match.Method, onlyValue(r.Match, "method")),
		PathPattern: cmp.Or(r.Match.Path, onlyValue(r.Match, "path")), Tier: onlyValue(r.Match, "tier"),
		Algorithm: limit.Algorithm.String(), MaxRequests: limit.Count, WindowSeconds: limit.Window.Seconds(),
		BurstCapacity: limit.Burst,
	}
}

func scopeOf(by []string) string {
	switch {
	case slices.Contains(by, "path"), slices.Contains(by, "route"), slices.Contains(by, "method"):
		return "endpoint"
	case slices.Contains(by, "tenant"):
		return "tenant"
	}
	return "global"
}

// onlyValue is the one value that an attribute must have, or "".
func onlyValue(m headgate.Match, name string) string {
	p := m.Attributes[name]
	if len(p.Values) == 1 && p.Prefix == "" && len(p.CIDR) == 0 && len(p.Not) == 0 {
		return p.Values[0]
	}
	return ""
}

// Same is whether two flat rules say the same: an algorithm may have two names, and a burst of MaxRequests goes without
// saying.
func (f Flat) Same(other Flat) bool { return plainest(f) == plainest(other) }

func plainest(f Flat) Flat {
	if a, ok := algorithmOf(f.Algorithm); ok {
		f.Algorithm = a.String()
	}
	if f.BurstCapacity == f.MaxRequests {
		f.BurstCapacity = 0
	}
	return f
}
