package headgate_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestCompileRejects has a rule for every error of Compile.
func TestCompileRejects(t *testing.T) {
	t.Parallel()
	match := func(name string, p headgate.Pattern) func(*headgate.Rule) {
		return func(r *headgate.Rule) { r.Match.Attributes = map[string]headgate.Pattern{name: p} }
	}
	path := func(text string) func(*headgate.Rule) { return func(r *headgate.Rule) { r.Match.Path = text } }
	network := func(text string) headgate.Pattern { return headgate.InCIDR(netip.MustParsePrefix(text)) }
	tests := []struct {
		change func(*headgate.Rule)
		want   string // path: problem
	}{
		{func(r *headgate.Rule) { r.ID = "" }, ": id: required"},
		{func(r *headgate.Rule) { r.ID = "a b" }, `id: character ' ': must be a letter, a digit or one of -_.:/`},
		{func(r *headgate.Rule) { r.ID = `a"` }, `id: character '"'`},
		{func(r *headgate.Rule) { r.ID = strings.Repeat("x", 129) }, "id: 129 bytes: must be at most 128"},

		{func(r *headgate.Rule) { r.By = nil }, "by: required: write by: [ip] to count by address, or by: [] for one"},
		{func(r *headgate.Rule) { r.By = []string{"ip", "ip"} }, `by: duplicate attribute "ip"`},
		{func(r *headgate.Rule) { r.By = []string{"ipp"} }, `by: unknown attribute "ipp": must be one of ip,`},
		{func(r *headgate.Rule) { r.By = []string{"header.X-Y"} }, `by: attribute "header.X-Y": must be lower case: write header.x-y`},
		{func(r *headgate.Rule) { r.By = []string{"claim."} }, `by: attribute "claim.": name required after the dot`},
		{func(r *headgate.Rule) { r.By = []string{headgate.OtherPath} }, `by: unknown attribute "path.other"`},

		{path("login"), `match.path: path "login": must begin with a slash: write "/login"`},
		{path("/a?b=c"), "match.path: path \"/a?b=c\": must not have a query"},
		{path("/a%20b"), "match.path: path \"/a%20b\": must not contain % \\ or ;"},
		{path("/a//b"), "match.path: path \"/a//b\": empty segment"},
		{path("/a/../b"), "match.path: path \"/a/../b\": segment \"..\": paths are matched with dot segments resolved"},
		{path("/**/b"), "match.path: path \"/**/b\": ** matches the rest of the path and must be last"},
		{path("/a*"), "match.path: path \"/a*\": segment \"a*\": must be text, * or {name}"},
		{path("/{a"), "match.path: path \"/{a\": segment \"{a\": must be text, * or {name}"},
		{path(strings.Repeat("/a", 33)), ": 33 segments: must be at most 32"},
		{match("path", headgate.NoneOf("x")), `match.path: path "x": must begin with a slash`},
		{match("path", headgate.HasPrefix("/api/")), `match.path: prefix and cidr cannot match paths, which are matched by templates: write "/api/**"`},
		{func(r *headgate.Rule) {
			match("path", headgate.OneOf("/b"))(r)
			r.Match.Path = "/a"
		}, "match.path: duplicate"},
		{func(r *headgate.Rule) { r.Match.IgnoreCase = true }, "match.ignore_case: only affects path, and the rule has no path"},
		{func(r *headgate.Rule) { r.Match.Method = "post" }, `match.method: method "post": must be upper case: write POST`},
		{func(r *headgate.Rule) { r.Match.Method = "HEAD" }, `match.method: method "HEAD": HEAD requests are counted as GET`},
		{func(r *headgate.Rule) { r.Match.Host = "API.example.com" }, `match.host: host "API.example.com": must be lower case: write api.example.com`},
		{func(r *headgate.Rule) { r.Match.Host = "a.*.com" }, "match.host: host \"a.*.com\": a wildcard is only allowed at the front"},
		{func(r *headgate.Rule) { r.Match.Host = "a.com:80" }, "match.host: host \"a.com:80\": must be a name without scheme, port or path"},
		{match("color", headgate.OneOf("red")), `match.color: unknown attribute "color"`},
		{match("tenant", headgate.Pattern{}), "match.tenant: empty pattern"},
		{match("tenant", headgate.OneOf("")), "match.tenant: empty value"},
		{match("tenant", headgate.Pattern{Values: []string{"a"}, Presence: headgate.Absent}), "match.tenant: absent and a value exclude each other"},
		{match("tenant", headgate.Pattern{Presence: 9}), "match.tenant: presence 9: must be 0 to 2"},
		{match("ip", network("10.1.0.0/8")), "match.ip: 10.1.0.0/8: has bits set after its prefix: write 10.0.0.0/8"},
		{match("ip", network("::ffff:10.0.0.0/104")), "match.ip: ::ffff:10.0.0.0/104: IPv4 mapped to IPv6"},
		{match("ip", headgate.InCIDR(netip.Prefix{})), "match.ip: invalid network: write it like 10.0.0.0/8"},
		{func(r *headgate.Rule) { r.When.Text = "true" }, "when: Holds: required"},

		{func(r *headgate.Rule) { r.Limit = headgate.Limit{} }, ": limit: required: write limit: 10/minute"},
		{func(r *headgate.Rule) { r.Limit.Count = -1 }, "limit: count -1: must be 1 to"},
		{func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"": headgate.PerDay(1)} }, "limits: limit: name required"},
		{func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"a b": headgate.PerDay(1)} }, "limits.a b: character ' '"},
		{func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"month": headgate.PerDay(0)} }, "limits.month: count 0"},
		{func(r *headgate.Rule) { r.Tiers = map[string]headgate.Plan{"pro": {}} }, "tiers.pro: limit: required: write pro: 100/minute"},
		{func(r *headgate.Rule) { r.Tiers = map[string]headgate.Plan{"": {Limit: headgate.PerDay(1)}} }, "tiers.: tier: name required"},
		{func(r *headgate.Rule) { r.Tiers = map[string]headgate.Plan{"pro": {Limit: headgate.PerDay(-1)}} }, "tiers.pro.limit: count -1"},
		{func(r *headgate.Rule) {
			r.Tiers = map[string]headgate.Plan{"pro": {Limits: map[string]headgate.Limit{"peak": headgate.PerDay(1)}}}
		}, "tiers.pro.limits.peak: replaces a limit of this name, but the rule has none: write limit, without a name"},
		{func(r *headgate.Rule) {
			r.Limits, r.Limit = map[string]headgate.Limit{"peak": headgate.PerDay(1)}, headgate.Limit{}
			r.Candidate.Limit = headgate.PerDay(1)
		}, "candidate.limit: replaces a limit without a name, but the rule has none: write limits with one of its names: peak"},
		{func(r *headgate.Rule) {
			r.Limits = map[string]headgate.Limit{"peak": headgate.PerDay(1)}
			r.Candidate.Limits = map[string]headgate.Limit{"month": headgate.PerDay(1)}
		}, "candidate.limits.month: replaces a limit of this name, but the rule has none: must be one of peak"},

		{func(r *headgate.Rule) { r.Cost.Default = -1 }, "cost: -1: must be 1 to 1000000000"},
		{func(r *headgate.Rule) { r.Cost = headgate.Cost{From: "user", Min: 5, Max: 4} }, "cost: min 5: must be at most max 4"},
		{func(r *headgate.Rule) { r.Cost.Min = 5 }, "cost: min only applies to from or max"},
		{func(r *headgate.Rule) { r.Cost.From = "rows" }, `cost: unknown attribute "rows"`},

		{func(r *headgate.Rule) { r.Cost.Default = 4 }, "cost: 4: must be at most 3, the capacity of 3/minute: otherwise every request is denied"},
		{func(r *headgate.Rule) {
			r.Cost.Default, r.Tiers = 3, map[string]headgate.Plan{"free": {Limit: headgate.PerMinute(2)}}
		}, "cost: 3: must be at most 2, the capacity of 2/minute"},

		{func(r *headgate.Rule) { r.Priority = -1 }, "priority: -1: must be 0"},
		{
			func(r *headgate.Rule) {
				r.MaxCallerLimit, r.Limits = headgate.PerMinute(5), map[string]headgate.Limit{"daily": headgate.PerDay(1)}
			},
			"max_caller_limit: replaces the only limit of a rule, but this rule has 2: split the rule",
		},
		{
			func(r *headgate.Rule) {
				r.MaxCallerLimit, r.Limit = headgate.PerMinute(5), headgate.Quota(1, headgate.Month, nil)
			},
			"max_caller_limit: must be a rate, but the rule's limit follows the calendar: write a rate in both",
		},
		{func(r *headgate.Rule) { r.MaxCallerLimit = headgate.Limit{Count: 5} }, "max_caller_limit: window 0s: must be 1ms to 366 days"},
		{
			func(r *headgate.Rule) { r.Overdraw, r.Candidate.Limit = true, headgate.PerDay(1) },
			"overdraw: not supported with a leaky_bucket or a candidate: remove one of them",
		},
		{func(r *headgate.Rule) { r.EnforcePercent = 101 }, "enforce_percent: 101: must be 1 to 100"},
		{func(r *headgate.Rule) { r.EnforcePercent, r.By = 10, headgate.Global }, "enforce_percent: selects subjects, but by: [] has only one"},
		{func(r *headgate.Rule) { r.MaxDelay = -1 }, "max_delay: -1ns: must not be negative"},
		{func(r *headgate.Rule) { r.MaxDelay = time.Second }, "max_delay: only a leaky_bucket delays requests"},
		{func(r *headgate.Rule) { r.Mode = 3 }, "mode: 3: must be 0 to 2"},
		{func(r *headgate.Rule) { r.OnMissing = 3 }, "on_missing: 3: must be 0 to 2"},
		{func(r *headgate.Rule) { r.Regions = 3 }, "regions: 3: must be 0 to 2"},
		{func(r *headgate.Rule) {
			r.Regions, r.Limit = headgate.HomeRegion, headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Minute}
		}, "regions: home: not supported with a concurrency limit, whose units a node must renew in its own region: write each or shared"},
		{func(r *headgate.Rule) { r.OnStoreFailure = 3 }, "on_store_failure: 3: must be 0 to 2"},
		{func(r *headgate.Rule) { r.Expose = 3 }, "expose: 3: must be 0 to 2"},
		{many(headgate.PerHour(1), headgate.MaxWeight), "limits: weight 65: must be at most 64, which a store decides in one step"},
		{many(headgate.Limit{Algorithm: headgate.SlidingLog, Count: 128, Window: time.Hour}, 8), "limits: weight 65: must be at most 64"},
		{many(headgate.Limit{Algorithm: headgate.SlidingLog, Count: 129, Window: time.Hour}, 4), "limits: weight 65: must be at most 64"},
		{func(r *headgate.Rule) {
			many(headgate.PerHour(1), headgate.MaxWeight/2)(r)
			r.Overdraw = true
		}, "limits: weight 66: must be at most 64"},
		{func(r *headgate.Rule) {
			many(headgate.PerHour(1), headgate.MaxWeight-1)(r)
			r.Candidate.Limit = headgate.PerHour(2)
		}, "limits: weight 65: must be at most 64"},
	}
	for _, test := range tests {
		_, err := headgate.Compile(rule(test.change))
		var wrong *headgate.RuleError
		if !errors.As(err, &wrong) {
			t.Errorf("%v, want %q", err, test.want)
			continue
		}
		if got := strings.Join(wrong.Path, ".") + ": " + wrong.Problem; !strings.Contains(got, test.want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%v, want only %q", err, test.want)
		}
	}
}

// many adds n limits to a rule.
func many(limit headgate.Limit, n int) func(*headgate.Rule) {
	return func(r *headgate.Rule) {
		r.Limits = map[string]headgate.Limit{}
		for i := range n {
			r.Limits[fmt.Sprint("l", i)] = limit
		}
	}
}

// TestCompileLimitsWeightOfAllRequests bounds rules that match every request. The others are not known to match together.
func TestCompileLimitsWeightOfAllRequests(t *testing.T) {
	t.Parallel()
	rules := func(change func(*headgate.Rule)) (all []headgate.Rule) {
		for i := range headgate.MaxWeight + 1 {
			all = append(all, rule(func(r *headgate.Rule) {
				r.ID = fmt.Sprint("r", i)
				change(r)
			}))
		}
		return all
	}
	_, err := headgate.Compile(rules(func(*headgate.Rule) {})...)
	if err == nil || !strings.Contains(err.Error(), `rule "r64": weight 65: the total of all rules that match every request must be at most 64`) {
		t.Error(err)
	}
	for _, change := range []func(*headgate.Rule){
		func(r *headgate.Rule) { r.Match.Method = "GET" },
		func(r *headgate.Rule) { r.Priority = 1 },
		func(r *headgate.Rule) { r.Mode = headgate.Off },
		func(r *headgate.Rule) {
			r.When = headgate.Condition{Text: "true", Holds: func(headgate.Attributes) bool { return true }}
		},
	} {
		if _, err := headgate.Compile(rules(change)...); err != nil {
			t.Error(err)
		}
	}
}

func TestCompileNamesBothRules(t *testing.T) {
	t.Parallel()
	_, err := headgate.Compile(rule(nil), rule(func(r *headgate.Rule) { r.ID = "s" }), rule(nil))
	var wrong *headgate.RuleError
	if !errors.As(err, &wrong) || wrong.Index != 2 || wrong.Other != 0 {
		t.Errorf("%v: %+v", err, wrong)
	}
}

// TestCompileRejectsCounterCollisions has two ids whose limits have the same 48-bit counter, found by search.
func TestCompileRejectsCounterCollisions(t *testing.T) {
	t.Parallel()
	const a, b = "r10465846", "r37505225"
	if headgate.CounterOf(a, "", headgate.TokenBucket) != headgate.CounterOf(b, "", headgate.TokenBucket) {
		t.Fatalf("%s and %s do not collide", a, b)
	}
	_, err := headgate.Compile(rule(func(r *headgate.Rule) { r.ID = a }), rule(func(r *headgate.Rule) { r.ID = b }))
	if err == nil || !strings.Contains(err.Error(), `has the same counter as rule "`+a+`" by chance: change one of the ids`) {
		t.Error(err)
	}
}

// TestCompileAccepts compiles rules with values at their bounds.
func TestCompileAccepts(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*headgate.Rule){
		func(r *headgate.Rule) { r.ID = strings.Repeat("x", 128) },
		func(r *headgate.Rule) { r.Match.Path = strings.Repeat("/a", 32) },
		func(r *headgate.Rule) { r.Match.Path = "/" },
		func(r *headgate.Rule) { r.Match.Path = "/a/" },
		func(r *headgate.Rule) { r.Match.Host = "[::1]" },
		func(r *headgate.Rule) { r.Priority = math.MaxInt },
		func(r *headgate.Rule) { r.EnforcePercent = 100 },
		func(r *headgate.Rule) {
			r.Cost = headgate.Cost{Default: headgate.MaxCost}
			r.Limit = headgate.Limit{Algorithm: headgate.FixedWindow, Count: headgate.MaxCost, Window: time.Hour}
		},
		func(r *headgate.Rule) {
			r.Cost = headgate.Cost{From: "descriptor.units", Min: 1, Max: headgate.MaxCost}
		},
		func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"extra": headgate.PerDay(1)} },
	} {
		if _, err := headgate.Compile(rule(change)); err != nil {
			t.Error(err)
		}
	}
	if set, err := headgate.Compile(); err != nil || len(set.Attributes()) != 0 {
		t.Errorf("no rules: %v", err)
	}
}
