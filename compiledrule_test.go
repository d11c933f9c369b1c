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

// TestCompileDenies has a rule for every sentence that Compile knows.
func TestCompileDenies(t *testing.T) {
	t.Parallel()
	match := func(name string, p headgate.Pattern) func(*headgate.Rule) {
		return func(r *headgate.Rule) { r.Match.Attributes = map[string]headgate.Pattern{name: p} }
	}
	path := func(text string) func(*headgate.Rule) { return func(r *headgate.Rule) { r.Match.Path = text } }
	network := func(text string) headgate.Pattern { return headgate.InCIDR(netip.MustParsePrefix(text)) }
	tests := []struct {
		change func(*headgate.Rule)
		want   string // where: what
	}{
		{func(r *headgate.Rule) { r.ID = "" }, ": has no id"},
		{func(r *headgate.Rule) { r.ID = "a b" }, `id: has ' ' in it: use letters, digits and -_.:/`},
		{func(r *headgate.Rule) { r.ID = `a"` }, `id: has '"' in it`},
		{func(r *headgate.Rule) { r.ID = strings.Repeat("x", 129) }, "id: is longer than 128"},

		{func(r *headgate.Rule) { r.By = nil }, "by: is missing: write by: [ip] to count each address, or by: [] for one"},
		{func(r *headgate.Rule) { r.By = []string{"ip", "ip"} }, `by: names "ip" twice`},
		{func(r *headgate.Rule) { r.By = []string{"ipp"} }, `by: there is no attribute "ipp": the built-in ones are ip,`},
		{func(r *headgate.Rule) { r.By = []string{"header.X-Y"} }, `by: attribute "header.X-Y" has capitals: write header.x-y`},
		{func(r *headgate.Rule) { r.By = []string{"claim."} }, `by: attribute "claim." lacks what comes after the dot`},
		{func(r *headgate.Rule) { r.By = []string{headgate.OtherPath} }, `by: there is no attribute "path.other"`},

		{path("login"), `match.path: path "login" must begin with a slash: write "/login"`},
		{path("/a?b=c"), "match.path: path \"/a?b=c\" has a query"},
		{path("/a%20b"), "match.path: path \"/a%20b\" has one of % \\ ; in it"},
		{path("/a//b"), "match.path: path \"/a//b\": an empty segment"},
		{path("/a/../b"), "match.path: path \"/a/../b\": paths are matched with their dots resolved"},
		{path("/**/b"), "match.path: path \"/**/b\": ** stands for the rest of the path and comes last"},
		{path("/a*"), "match.path: path \"/a*\": a segment is text, * or {name}"},
		{path("/{a"), "match.path: path \"/{a\": a segment is text, * or {name}"},
		{path(strings.Repeat("/a", 33)), "has more than 32 segments"},
		{match("path", headgate.NoneOf("x")), `match.path: path "x" must begin with a slash`},
		{match("path", headgate.HasPrefix("/api/")), `match.path: paths are matched by templates: write "/api/**"`},
		{func(r *headgate.Rule) {
			match("path", headgate.OneOf("/b"))(r)
			r.Match.Path = "/a"
		}, "match.path: is given twice"},
		{func(r *headgate.Rule) { r.Match.IgnoreCase = true }, "match.ignore_case: is about paths, and the rule matches none"},
		{func(r *headgate.Rule) { r.Match.Method = "post" }, "match.method: methods are written in capitals: POST"},
		{func(r *headgate.Rule) { r.Match.Method = "HEAD" }, "match.method: HEAD counts as GET"},
		{func(r *headgate.Rule) { r.Match.Host = "API.example.com" }, "match.host: hosts are compared in lower case: write api.example.com"},
		{func(r *headgate.Rule) { r.Match.Host = "a.*.com" }, "match.host: host \"a.*.com\": a star stands only at the front"},
		{func(r *headgate.Rule) { r.Match.Host = "a.com:80" }, "match.host: host \"a.com:80\": write the name alone"},
		{match("color", headgate.OneOf("red")), `match.color: there is no attribute "color"`},
		{match("tenant", headgate.Pattern{}), "match.tenant: asks for nothing"},
		{match("tenant", headgate.OneOf("")), "match.tenant: an empty value is the same as none"},
		{match("tenant", headgate.Pattern{Values: []string{"a"}, Presence: headgate.Absent}), "match.tenant: an attribute cannot be absent and have a value"},
		{match("tenant", headgate.Pattern{Presence: 9}), "match.tenant: there is no presence 9"},
		{match("ip", network("10.1.0.0/8")), "match.ip: 10.1.0.0/8 has bits set beyond its prefix: write 10.0.0.0/8"},
		{match("ip", network("::ffff:10.0.0.0/104")), "match.ip: ::ffff:10.0.0.0/104 is IPv4 in the clothes of IPv6"},
		{match("ip", headgate.InCIDR(netip.Prefix{})), "match.ip: a network is written like 10.0.0.0/8"},
		{func(r *headgate.Rule) { r.When.Text = "true" }, "when: a condition needs its function"},

		{func(r *headgate.Rule) { r.Limit = headgate.Limit{} }, ": has no limit: write limit: 10/minute"},
		{func(r *headgate.Rule) { r.Limit.Count = -1 }, "limit: a count of -1 is out of bounds"},
		{func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"": headgate.PerDay(1)} }, "limits: a limit here needs a name"},
		{func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"a b": headgate.PerDay(1)} }, "limits.a b: has ' ' in it"},
		{func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"month": headgate.PerDay(0)} }, "limits.month: a count of 0"},
		{func(r *headgate.Rule) { r.Tiers = map[string]headgate.Plan{"pro": {}} }, "tiers.pro: has no limit: write pro: 100/minute"},
		{func(r *headgate.Rule) { r.Tiers = map[string]headgate.Plan{"": {Limit: headgate.PerDay(1)}} }, "tiers.: a tier needs a name"},
		{func(r *headgate.Rule) { r.Tiers = map[string]headgate.Plan{"pro": {Limit: headgate.PerDay(-1)}} }, "tiers.pro.limit: a count of -1"},
		{func(r *headgate.Rule) {
			r.Tiers = map[string]headgate.Plan{"pro": {Limits: map[string]headgate.Limit{"peak": headgate.PerDay(1)}}}
		}, "tiers.pro.limits.peak: the rule has no limit of this name for this to replace: write limit, without a name"},
		{func(r *headgate.Rule) {
			r.Limits, r.Limit = map[string]headgate.Limit{"peak": headgate.PerDay(1)}, headgate.Limit{}
			r.Candidate.Limit = headgate.PerDay(1)
		}, "candidate.limit: the rule has no limit without a name for this to replace: write limits with one of its names: peak"},
		{func(r *headgate.Rule) {
			r.Limits = map[string]headgate.Limit{"peak": headgate.PerDay(1)}
			r.Candidate.Limits = map[string]headgate.Limit{"month": headgate.PerDay(1)}
		}, "candidate.limits.month: the rule has no limit of this name for this to replace; it has peak"},

		{func(r *headgate.Rule) { r.Cost.Default = -1 }, "cost: -1 is out of bounds: write 1 to 1000000000"},
		{func(r *headgate.Rule) { r.Cost = headgate.Cost{From: "user", Min: 5, Max: 4} }, "cost: its min of 5 is above its max of 4"},
		{func(r *headgate.Rule) { r.Cost.Max = 5 }, "cost: min and max bound what an attribute says: add from"},
		{func(r *headgate.Rule) { r.Cost.From = "rows" }, `cost: there is no attribute "rows"`},

		{func(r *headgate.Rule) { r.Cost.Default = 4 }, "cost: a request costs 4, and 3/minute holds 3 at once: none could ever pass"},
		{func(r *headgate.Rule) {
			r.Cost.Default, r.Tiers = 3, map[string]headgate.Plan{"free": {Limit: headgate.PerMinute(2)}}
		}, "cost: a request costs 3, and 2/minute holds 2 at once"},

		{func(r *headgate.Rule) { r.Priority = -1 }, "priority: is -1"},
		{
			func(r *headgate.Rule) {
				r.MaxCallerLimit, r.Limits = headgate.PerMinute(5), map[string]headgate.Limit{"daily": headgate.PerDay(1)}
			},
			"max_caller_limit: a caller brings one limit, and the rule has 2: make a rule of each",
		},
		{
			func(r *headgate.Rule) {
				r.MaxCallerLimit, r.Limit = headgate.PerMinute(5), headgate.Quota(1, headgate.Month, nil)
			},
			"max_caller_limit: a caller's limit is so many in a span of time, and the rule's is by the calendar: write a rate",
		},
		{func(r *headgate.Rule) { r.MaxCallerLimit = headgate.Limit{Count: 5} }, "max_caller_limit: a window of 0s is out of bounds"},
		{
			func(r *headgate.Rule) { r.Overdraw, r.Candidate.Limit = true, headgate.PerDay(1) },
			"overdraw: does not go with a leaky_bucket or a candidate: remove one of them",
		},
		{func(r *headgate.Rule) { r.EnforcePercent = 101 }, "enforce_percent: is 101: write 1 to 100"},
		{func(r *headgate.Rule) { r.EnforcePercent, r.By = 10, headgate.Global }, "enforce_percent: picks subjects, and with by: [] there is only one"},
		{func(r *headgate.Rule) { r.MaxDelay = -1 }, "max_delay: is negative"},
		{func(r *headgate.Rule) { r.MaxDelay = time.Second }, "max_delay: is how long a leaky_bucket may hold a request"},
		{func(r *headgate.Rule) { r.Mode = 3 }, "mode: there is no 3"},
		{func(r *headgate.Rule) { r.OnMissing = 3 }, "on_missing: there is no 3"},
		{func(r *headgate.Rule) { r.OnStoreFailure = 3 }, "on_store_failure: there is no 3"},
		{func(r *headgate.Rule) { r.Expose = 3 }, "expose: there is no 3"},
		{many(headgate.PerHour(1), headgate.MaxWeight), "limits: weigh 65 together, and a request is charged on at most 64 in one step"},
		{many(headgate.Limit{Algorithm: headgate.SlidingLog, Count: 128, Window: time.Hour}, 8), "limits: weigh 65 together"},
		{many(headgate.Limit{Algorithm: headgate.SlidingLog, Count: 129, Window: time.Hour}, 4), "limits: weigh 65 together"},
		{func(r *headgate.Rule) {
			many(headgate.PerHour(1), headgate.MaxWeight/2)(r)
			r.Overdraw = true
		}, "limits: weigh 66 together"},
		{func(r *headgate.Rule) {
			many(headgate.PerHour(1), headgate.MaxWeight-1)(r)
			r.Candidate.Limit = headgate.PerHour(2)
		}, "limits: weigh 65 together"},
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

// many gives a rule so many limits more.
func many(limit headgate.Limit, n int) func(*headgate.Rule) {
	return func(r *headgate.Rule) {
		r.Limits = map[string]headgate.Limit{}
		for i := range n {
			r.Limits[fmt.Sprint("l", i)] = limit
		}
	}
}

// Rules that match every request must be decided in one step; how many match some is not known before.
func TestCompileWeighsWhatMatchesAll(t *testing.T) {
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
	if err == nil || !strings.Contains(err.Error(), `rule "r64": matches every request, as others before it, and their limits weigh 65 together`) {
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

// TestCompileFindsCollisions has two ids whose limits have the same 48-bit counter, found by search.
func TestCompileFindsCollisions(t *testing.T) {
	t.Parallel()
	const a, b = "r10465846", "r37505225"
	if headgate.CounterOf(a, "", headgate.TokenBucket) != headgate.CounterOf(b, "", headgate.TokenBucket) {
		t.Fatalf("%s and %s do not collide", a, b)
	}
	_, err := headgate.Compile(rule(func(r *headgate.Rule) { r.ID = a }), rule(func(r *headgate.Rule) { r.ID = b }))
	if err == nil || !strings.Contains(err.Error(), `has by chance the same counter as "`+a+`": change one of the ids`) {
		t.Error(err)
	}
}

// Everything that a rule document can say at its bounds is accepted.
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
		func(r *headgate.Rule) { r.Limits = map[string]headgate.Limit{"beside": headgate.PerDay(1)} },
	} {
		if _, err := headgate.Compile(rule(change)); err != nil {
			t.Error(err)
		}
	}
	if set, err := headgate.Compile(); err != nil || len(set.Attributes()) != 0 {
		t.Errorf("no rules: %v", err)
	}
}
