package envoyconfig

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// limits expands abbreviations of rate limits.
var limits = strings.NewReplacer("1/day", "rate_limit: {unit: day, requests_per_unit: 1}",
	"2/day", "rate_limit: {unit: day, requests_per_unit: 2}", "0/day", "rate_limit: {unit: day, requests_per_unit: 0}",
	"unlimited", "rate_limit: {unlimited: true}")

// TestSemantics checks descriptors one after the other and compares which rule applies. An exclamation mark means that the rule denies,
// a question mark that it would deny but is in shadow mode.
func TestSemantics(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ config, descriptors, want string }{
		"another key":           {"[{key: k, 1/day}]", "l=v", "none"},
		"by value":              {"[{key: k, 1/day}]", "k=v k=v k=w", "k k! k"},
		"empty values are one":  {"[{key: k, 1/day}]", "k= k=", "k k!"},
		"the entries end there": {"[{key: k, 1/day}]", "k=v,l=v k=w,k=w", "none none"},
		"the value":             {"[{key: k, value: v, 1/day}]", "k=v k=w k=v", "k.v none k.v!"},
		"the value first":       {"[{key: k, 1/day}, {key: k, value: v, 2/day}]", "k=v k=w k=v k=v", "k.v k k.v k.v!"},
		"no limit":              {"[{key: k, 1/day}, {key: k, value: v}]", "k=v k=w", "none k"},
		"unlimited":             {"[{key: k, 1/day}, {key: k, value: v, unlimited}]", "k=v k=w", "none k"},
		"no backtracking": {
			"[{key: k, descriptors: [{key: l, 1/day}]}, {key: k, value: v, descriptors: [{key: m, 1/day}]}]",
			"k=v,l=x k=v,m=x k=w,l=x k=w,m=x", "none k.v/m k/l none",
		},
		"in order": {"[{key: k, descriptors: [{key: l, 1/day}]}]", "k=v,l=x l=x,k=v k=v l=x", "k/l none none none"},
		"all values count": {
			"[{key: k, descriptors: [{key: l, 1/day}]}]", "k=v,l=x k=v,l=y k=w,l=x k=v,l=x", "k/l k/l k/l k/l!",
		},
		"a key twice": {
			"[{key: k, descriptors: [{key: k, value: v, 1/day}]}]", "k=v,k=v k=v,k=w k=v,k=v", "k/k.v none k/k.v!",
		},
		"a prefix": {"[{key: k, value: v*, 1/day}]", "k=v k=va k=w k= k=va", "k.v... k.v... none none k.v...!"},
		"value, prefix": {
			"[{key: k, value: v*, 1/day}, {key: k, value: va, 2/day}, {key: k, 2/day}]", "k=va k=vb k=w", "k.va k.v... k",
		},
		"the first one":      {"[{key: k, value: va*, 1/day}, {key: k, value: v*, 2/day}]", "k=vab k=vb", "k.va... k.v..."},
		"a star for all":     {"[{key: k, value: '*', 1/day}]", "k=v k= k=", "k.... k.... k....!"},
		"a star inside":      {"[{key: k, value: v*w, 1/day}]", "k=vw k=v*w k=vwx k=v*w", "k.v...w k.v...w none k.v...w!"},
		"not the same twice": {"[{key: k, value: va*av, 1/day}]", "k=vav k=vaav", "none k.va...av"},
		"two stars":          {"[{key: k, value: a*b*c, 1/day}]", "k=abc k=axbxbc k=acb k=ac", "k.a...b...c k.a...b...c none none"},
		"stars in order": {
			"[{key: k, value: '*b', 1/day}, {key: k, value: a*, 2/day}, {key: k, 2/day}]", "k=ab k=ac k=b k=c",
			"k....b k.a... k....b k",
		},
		"stars shared": {"[{key: k, value: a*b, share_threshold: true, 1/day}]", "k=axb k=ayb", "k.a...b k.a...b!"},
		"shared":       {"[{key: k, value: v*, share_threshold: true, 1/day}]", "k=va k=vb", "k.v... k.v...!"},
		"shared above": {
			"[{key: k, value: v*, share_threshold: true, descriptors: [{key: l, 1/day}]}]", "k=va,l=x k=vb,l=y k=vb,l=x",
			"k.v.../l k.v.../l k.v.../l!",
		},
		"limit 0":                 {"[{key: k, 0/day}]", "k=v", "k!"},
		"shadow":                  {"[{key: k, shadow_mode: true, 1/day}]", "k=v k=v", "k k?"},
		"shadow is not inherited": {"[{key: k, shadow_mode: true, descriptors: [{key: l, 1/day}]}]", "k=v,l=x k=v,l=x", "k/l k/l!"},
		"quota mode":              {"[{key: k, quota_mode: true, 1/day}]", "k=v k=v", "k k?"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter := limiterOf(t, importConfigs(t, "domain: d\ndescriptors: "+limits.Replace(test.config)))
			var got []string
			for descriptor := range strings.SplitSeq(test.descriptors, " ") {
				got = append(got, check(t, limiter, "d", descriptor))
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// check returns which rule applies, and whether it denies.
func check(t *testing.T, limiter *headgate.Limiter, domain, entries string) string {
	t.Helper()
	d, err := limiter.Check(t.Context(), headgate.Request{Attributes: attributesOf(domain, entriesOf(entries))})
	switch {
	case err != nil:
		t.Fatal(err)
	case len(d.Limits) == 0:
		return "none"
	case len(d.Limits) > 1:
		return fmt.Sprint(d.Limits)
	}
	l := &d.Limits[0]
	id := strings.TrimPrefix(l.Rule, domain+"/")
	switch {
	case !d.Allowed:
		return id + "!"
	case l.WouldDeny():
		return id + "?"
	}
	return id
}

// TestDomains checks that files of one domain are merged, and that other domains are separate.
func TestDomains(t *testing.T) {
	t.Parallel()
	limiter := limiterOf(t, importConfigs(t, limits.Replace("domain: d\ndescriptors: [{key: k, 1/day}]"),
		limits.Replace("domain: d\ndescriptors: [{key: k, value: v, 1/day}]"),
		limits.Replace("domain: e\ndescriptors: [{key: k, 1/day}]")))
	for _, test := range []struct{ domain, descriptor, want string }{
		{"d", "k=v", "k.v"}, {"d", "k=w", "k"}, {"e", "k=v", "k"}, {"f", "k=v", "none"},
	} {
		if got := check(t, limiter, test.domain, test.descriptor); got != test.want {
			t.Errorf("%s: %s: got %s, want %s", test.domain, test.descriptor, got, test.want)
		}
	}
}

// TestLongValues checks that IDs of long values are unique and within the maximum length.
func TestLongValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", 300)
	config := "domain: d\ndescriptors: [{key: k, value: LONG1, 1/day}, {key: k, value: LONG2, 1/day}]"
	limiter := limiterOf(t, importConfigs(t, limits.Replace(strings.ReplaceAll(config, "LONG", long))))
	one, two := check(t, limiter, "d", "k="+long+"1"), check(t, limiter, "d", "k="+long+"2")
	if one == two || one == "none" || two == "none" {
		t.Error(one, two)
	}
}

// TestManyPrefixes checks the number of prefixes that a condition can hold, and that one more is reported.
func TestManyPrefixes(t *testing.T) {
	t.Parallel()
	prefixes := func(n int) string {
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n  - {key: k, 1/day}\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {key: k, value: v%02d*, 1/day}\n", i)
		}
		return limits.Replace(b.String())
	}
	limiter := limiterOf(t, importConfigs(t, prefixes(54)))
	if got := check(t, limiter, "d", "k=v53x") + check(t, limiter, "d", "k=v54"); got != "k.v53...k" {
		t.Error(got)
	}
	imported, err := Import(yamldoc.Source{Name: "x", Data: []byte(prefixes(55))})
	if err != nil {
		t.Fatal(err)
	}
	want := "x:3:5: d/k: no rule created: it has more siblings with a wildcard"
	if got := imported.NotConverted.Error(); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
	runTests(t, imported)
}

func TestProblems(t *testing.T) {
	t.Parallel()
	const limit = "domain: d\ndescriptors: [{key: k, rate_limit: {"
	tests := map[string]struct{ config, want string }{
		"broken YAML":   {"domain: [d\n", "x:1:9: [ is never closed: add ]"},
		"tab":           {"domain: d\n\tdescriptors: []\n", "x:2:1: tab in the indentation"},
		"empty":         {"", "x:1:1: a config is one document"},
		"two documents": {"domain: d\n---\ndomain: e\n", "x:1:1: a config is one document"},
		"no mapping":    {"- domain: d\n", "x:1:1: a config must be a mapping"},
		"no domain":     {"descriptors: []\n", "x:1:1: a config needs a domain"},
		"unknown key": {
			"domain: d\ndescriptor: []\n",
			`x:2:1: unknown key "descriptor"; did you mean "descriptors"?`,
		},
		"key misspelt in the wrong place": {
			limit + "unit: day, shadow_mod: true",
			`x:2:48: unknown key "shadow_mod"; did you mean "shadow_mode"?`,
		},
		"no list": {"domain: d\ndescriptors: {key: k}\n", "x:2:14: descriptors: must be a list"},
		"list of text": {
			"domain: d\ndescriptors: [k]\n",
			`x:2:15: a descriptor must be a mapping of keys to values, not "k"`,
		},
		"no key":        {"domain: d\ndescriptors: [{value: v}]\n", "x:2:15: a descriptor needs a key"},
		"key is a list": {"domain: d\ndescriptors: [{key: [k]}]\n", "x:2:21: key: must be text, not a list"},
		"unit": {
			limit + "unit: minuet",
			`x:2:43: unit: must be one of second, minute, hour, day, week, month, year, not "minuet"; did you mean minute?`,
		},
		"no unit": {limit + "requests_per_unit: 1", "x:2:36: rate_limit: needs a unit"},
		"unlimited and unit": {
			limit + "unlimited: true, unit: day",
			"x:2:48: rate_limit: unlimited and unit exclude each other",
		},
		"negative": {
			limit + "unit: day, requests_per_unit: -1",
			"x:2:67: requests_per_unit -1: must be 0 or more",
		},
		"no number": {
			limit + "unit: day, requests_per_unit: many",
			"x:2:67: requests_per_unit: must be a whole number",
		},
		"replaces itself": {
			limit + "unit: day, name: a, replaces: [{name: a}]",
			"x:2:75: replaces: a limit cannot replace itself",
		},
		"replaces null":    {limit + "unit: day, replaces: [{name: null}]", "x:2:59: replaces: no limit named"},
		"replaces nothing": {limit + "unit: day, replaces: [{name: ''}]", "x:2:66: replaces: no limit named"},
		"not to be shared": {
			"domain: d\ndescriptors: [{key: k, value: v, share_threshold: true}]\n",
			`x:2:51: share_threshold requires a value with *, not "v"`,
		},
		"twice": {
			"domain: d\ndescriptors: [{key: k, value: v}, {key: k, value: v}]\n",
			"x:2:35: k=v is a duplicate of x:2: remove one",
		},
		"too large": {strings.Repeat("#", MaxBytes+1), "x:1:1: the file is larger than 16 MB"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(test.config, limit) {
				test.config += "}}]\n"
			}
			_, err := Import(yamldoc.Source{Name: "x", Data: []byte(test.config)})
			var problems yamldoc.Errors
			if !errors.As(err, &problems) || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
	_, err := Import(yamldoc.Source{Name: "x", Data: []byte("domain: d\ndescriptors: [{key: k}]")},
		yamldoc.Source{Name: "y", Data: []byte("domain: d\ndescriptors: [{key: k}]")})
	if err == nil || !strings.HasPrefix(err.Error(), "y:2:15: k is a duplicate of x:2") {
		t.Error(err)
	}
}
