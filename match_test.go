package headgate_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
)

// TestIndexEqualsScan compares the index with a scan of all rules by a matcher that shares no code with it, for random rule sets and
// requests.
func TestIndexEqualsScan(t *testing.T) {
	t.Parallel()
	sets, requests := 1000, 40
	if testing.Short() {
		sets = 300
	}
	matched, displaced, ambiguous := 0, 0, 0
	for seed := range sets {
		g := newGenerator(uint64(seed), 1)
		rules := g.rules()
		set, err := headgate.Compile(rules...)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for range requests {
			a := g.attributes()
			want, lost := scan(rules, a)
			got := set.MatchIDs(a)
			matched += len(got)
			displaced += lost
			if a[headgate.OtherPath]+a[headgate.OtherMethod] != "" {
				ambiguous++
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: request %v\nindex: %v\nscan:  %v\nrules: %+v", seed, a, got, want, rules)
			}
		}
	}
	t.Logf("%d sets, %d requests, %d of them with several readings, %d matches, %d displaced by priority",
		sets, sets*requests, ambiguous, matched, displaced)
	if matched < sets*requests/2 || displaced < sets || ambiguous < sets {
		t.Errorf("too few matches")
	}
}

// evenLength reports whether path and method have an even total length: a condition that holds for about half of the requests.
func evenLength(a headgate.Attributes) bool { return (len(a["path"])+len(a["method"]))%2 == 0 }

// scan matches every rule in every reading, lets rules with a priority compete within each reading, and returns the rules that apply.
func scan(rules []headgate.Rule, a headgate.Attributes) (ids []string, displaced int) {
	applies := map[string]bool{}
	for _, reading := range readingsOf(a) {
		displaced += scanReading(rules, reading, applies)
	}
	for _, r := range rules {
		if applies[r.ID] {
			ids = append(ids, r.ID)
		}
	}
	return ids, displaced
}

// readingsOf returns the attributes of a request in all its readings.
func readingsOf(a headgate.Attributes) (all []headgate.Attributes) {
	paths, methods := []string{a["path"]}, []string{a["method"]}
	if other := a[headgate.OtherPath]; other != "" {
		paths = append(paths, strings.Split(other, "?")...)
	}
	switch other := a[headgate.OtherMethod]; other {
	case "":
	case headgate.AnyMethod:
		methods = append(methods, append([]string{"DELETE", "PATCH", "OTHER"}, verbs...)...)
	default:
		methods = append(methods, other)
	}
	for _, path := range paths {
		for _, method := range methods {
			b := maps.Clone(a)
			b["path"], b["method"] = path, method
			all = append(all, b)
		}
	}
	return all
}

func scanReading(rules []headgate.Rule, a headgate.Attributes, applies map[string]bool) (displaced int) {
	var matching []headgate.Rule
	for _, r := range rules {
		if r.Mode != headgate.Off && scanOne(r, a) && (r.When.Holds == nil || r.When.Holds(a)) {
			matching = append(matching, r)
		}
	}
	for _, r := range matching {
		highest := r.Priority
		for _, o := range matching {
			if o.Priority > 0 && slices.Equal(o.By, r.By) {
				highest = max(highest, o.Priority)
			}
		}
		if r.Priority > 0 && r.Priority < highest {
			displaced++
			continue
		}
		applies[r.ID] = true
	}
	return displaced
}

func scanOne(r headgate.Rule, a headgate.Attributes) bool {
	for name, p := range r.Match.Attributes {
		value := a[name]
		if name == "client" {
			value = cmp.Or(a["api_key"], a["ip"])
		}
		if !scanValue(name, p, value, r.Match.IgnoreCase) {
			return false
		}
	}
	return true
}

func scanValue(name string, p headgate.Pattern, value string, ignoreCase bool) bool {
	same := func(pattern string) bool {
		switch name {
		case "path":
			return templateRegexp(pattern, ignoreCase).MatchString(value)
		case "host":
			if strings.HasPrefix(pattern, "*.") {
				return regexp.MustCompile(`^.+` + regexp.QuoteMeta(pattern[1:]) + `$`).MatchString(value)
			}
		}
		return pattern == value
	}
	switch p.Presence {
	case headgate.Absent:
		return value == ""
	case headgate.Present:
		return value != ""
	}
	hasValue := len(p.Values)+len(p.CIDR) > 0 || p.Prefix != ""
	if value == "" {
		return !hasValue
	}
	if slices.ContainsFunc(p.Not, same) {
		return false
	}
	in := slices.ContainsFunc(p.CIDR, func(n netip.Prefix) bool {
		address, length, isNetwork := strings.Cut(value, "/")
		at, err := netip.ParseAddr(address)
		return err == nil && n.Contains(at) && (!isNetwork || length == "64" && n.Bits() <= 64)
	})
	return !hasValue || in || slices.ContainsFunc(p.Values, same) || p.Prefix != "" && strings.HasPrefix(value, p.Prefix)
}

// templates caches the translated templates, since translation is slow under the race detector.
var templates sync.Map

func templateRegexp(template string, ignoreCase bool) *regexp.Regexp {
	type key struct {
		template   string
		ignoreCase bool
	}
	if known, ok := templates.Load(key{template, ignoreCase}); ok {
		return known.(*regexp.Regexp)
	}
	var b strings.Builder
	if ignoreCase {
		b.WriteString("(?i)")
	}
	b.WriteString("^")
	for segment := range strings.SplitSeq(strings.Trim(template, "/"), "/") {
		switch {
		case segment == "**":
			b.WriteString("(/.*)?")
		case segment == "*" || strings.HasPrefix(segment, "{"):
			b.WriteString("/[^/]+")
		default:
			b.WriteString("/" + regexp.QuoteMeta(segment))
		}
	}
	b.WriteString("/?$")
	translated := regexp.MustCompile(b.String())
	templates.Store(key{template, ignoreCase}, translated)
	return translated
}

func TestMatch(t *testing.T) {
	t.Parallel()
	type attrs = headgate.Attributes
	tests := []struct {
		name  string
		match headgate.Match
		yes   []attrs
		no    []attrs
	}{
		{
			"everything",
			headgate.Match{},
			[]attrs{nil, {}, {"path": "/x"}},
			nil,
		},
		{
			"path and method",
			headgate.Match{Path: "/login", Method: "POST"},
			[]attrs{{"path": "/login", "method": "POST"}, {"path": "/login/", "method": "POST"}},
			[]attrs{
				{"path": "/login", "method": "GET"},
				{"path": "/login/x", "method": "POST"},
				{"path": "/Login", "method": "POST"},
				{"path": "/login"},
				{"method": "POST"},
				{},
			},
		},
		{
			"one segment",
			headgate.Match{Path: "/users/{id}/posts/*"},
			[]attrs{{"path": "/users/1/posts/2"}},
			[]attrs{{"path": "/users/1/posts"}, {"path": "/users/1/posts/2/3"}, {"path": "/users/posts/2"}},
		},
		{
			"rest of the path, itself included",
			headgate.Match{Path: "/api/**"},
			[]attrs{{"path": "/api"}, {"path": "/api/a"}, {"path": "/api/a/b/c"}, {"path": "/api/" + strings.Repeat("x/", 200)}},
			[]attrs{{"path": "/apis"}, {"path": "/"}, {}},
		},
		{"root", headgate.Match{Path: "/"}, []attrs{{"path": "/"}}, []attrs{{"path": "/a"}}},
		{"any path", headgate.Match{Path: "/**"}, []attrs{{"path": "/"}, {"path": "/a/b"}}, []attrs{{}}},
		{
			"without regard to case",
			headgate.Match{Path: "/Login", IgnoreCase: true},
			[]attrs{{"path": "/login"}, {"path": "/LOGIN"}, {"path": "/x", headgate.OtherPath: "/LogIn"}},
			[]attrs{{"path": "/log"}},
		},
		{
			"either reading of the path",
			headgate.Match{Path: "/users/{id}"},
			[]attrs{{"path": "/users/a/b", headgate.OtherPath: "/users/a%2Fb"}, {"path": "/users/a", headgate.OtherPath: "/x"}},
			[]attrs{{"path": "/users/a/b", headgate.OtherPath: "/x"}},
		},
		{
			"either reading of the method",
			headgate.Match{Method: "DELETE"},
			[]attrs{{"method": "POST", headgate.OtherMethod: "DELETE"}, {"method": "DELETE"}},
			[]attrs{{"method": "POST", headgate.OtherMethod: "PUT"}},
		},
		{
			"all but some paths",
			headgate.Match{Attributes: map[string]headgate.Pattern{"path": headgate.NoneOf("/healthz", "/metrics/**")}},
			[]attrs{{"path": "/"}, {"path": "/healthz/x"}, {}},
			[]attrs{{"path": "/healthz"}, {"path": "/metrics"}, {"path": "/metrics/a"}},
		},
		{
			"host below a domain",
			headgate.Match{Host: "*.example.com"},
			[]attrs{{"host": "a.example.com"}, {"host": "a.b.example.com"}},
			[]attrs{{"host": "example.com"}, {"host": "badexample.com"}, {"host": ".example.com"}},
		},
		{
			"address",
			headgate.Match{Attributes: map[string]headgate.Pattern{"ip": headgate.InCIDR(netip.MustParsePrefix("2001:db8::/32"))}},
			[]attrs{{"ip": "2001:db8:1:2::/64"}, {"ip": "2001:db8::1"}, {"ip": "2001:db8::1%eth0"}},
			[]attrs{{"ip": "2001:db9::1"}, {"ip": "10.0.0.1"}, {"ip": "x"}, {"ip": "2001::/16"}, {}},
		},
		{
			"conditions other than the indexed one",
			headgate.Match{Host: "*.example.com", Attributes: map[string]headgate.Pattern{
				"api_key": headgate.OneOf("k"), "ip": headgate.InCIDR(netip.MustParsePrefix("2001:db8::/32")),
			}},
			[]attrs{{"api_key": "k", "host": "a.example.com", "ip": "2001:db8::/32"}},
			[]attrs{
				{"api_key": "k", "host": ".example.com", "ip": "2001:db8::/32"}, {"api_key": "k", "host": "a.example.com", "ip": "2001:db8::/31"},
			},
		},
		{
			"an address mapped into IPv6",
			headgate.Match{Attributes: map[string]headgate.Pattern{"ip": headgate.InCIDR(netip.MustParsePrefix("10.0.0.0/8"))}},
			[]attrs{{"ip": "::ffff:10.1.2.3"}},
			[]attrs{{"ip": "::ffff:11.1.2.3"}},
		},
		{
			"an empty value is none",
			headgate.Match{Attributes: map[string]headgate.Pattern{"user": headgate.IsAbsent()}},
			[]attrs{{}, {"user": ""}},
			[]attrs{{"user": "ann"}},
		},
		{
			"a value or a prefix",
			headgate.Match{Attributes: map[string]headgate.Pattern{"tenant": {Values: []string{"acme"}, Prefix: "test-", Not: []string{"test-1"}}}},
			[]attrs{{"tenant": "acme"}, {"tenant": "test-2"}},
			[]attrs{{"tenant": "test-1"}, {"tenant": "acm"}, {}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			set, err := headgate.Compile(headgate.Rule{ID: "r", Match: test.match, By: headgate.Global, Limit: headgate.PerMinute(1)})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range test.yes {
				if len(set.MatchIDs(a)) != 1 {
					t.Errorf("%v does not match", a)
				}
			}
			for _, a := range test.no {
				if len(set.MatchIDs(a)) != 0 {
					t.Errorf("%v matches", a)
				}
			}
		})
	}
}

// TestMatchAllocations matches a thousand rules. Only hashing an API key allocates.
func TestMatchAllocations(t *testing.T) {
	var rules []headgate.Rule
	for i := range 1000 {
		rules = append(rules, headgate.Rule{
			ID: fmt.Sprint("r", i), By: []string{"user"}, Limit: headgate.PerMinute(1),
			Match: headgate.Match{
				Path: fmt.Sprintf("/api/v%d/{id}/**", i), Method: "GET", Host: "*.example.com", IgnoreCase: i%2 == 0,
				Attributes: map[string]headgate.Pattern{"ip": headgate.InCIDR(netip.MustParsePrefix("10.0.0.0/8"))},
			},
		})
	}
	set := compile(t, rules...)
	for key, want := range map[string]float64{"": 0, headgate.HashKey("k"): 0, "k": 1} {
		request := headgate.Attributes{"path": "/api/v7/x/y/z", "method": "GET", "host": "a.example.com", "ip": "10.0.0.1", "api_key": key}
		var m headgate.Matcher
		allocs := testing.AllocsPerRun(1000, func() {
			if n := m.Match(set, request); n != 1 {
				t.Fatalf("%d rules match", n)
			}
		})
		if allocs != want {
			t.Errorf("API key %q: %v allocations, want %v", key, allocs, want)
		}
	}
}
