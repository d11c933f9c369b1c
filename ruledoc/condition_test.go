package ruledoc

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// conditionTests are conditions with requests for which they hold, and requests for which they do not.
var conditionTests = []struct {
	text       string
	attributes []string
	holds, not []headgate.Attributes
}{
	{
		text: `user_agent.startsWith("legacy/") && !(region in ["eu", "uk"])`, attributes: []string{"region", "user_agent"},
		holds: []headgate.Attributes{{"user_agent": "legacy/1"}, {"user_agent": "legacy/1", "region": "us"}},
		not:   []headgate.Attributes{{}, {"user_agent": "legacy/1", "region": "uk"}, {"user_agent": "new/1", "region": "us"}},
	},
	{
		text:       `header["x-app"] == "a" || claim.plan == "pro" || cookie.Beta != "" || descriptor["k e y"] > "m"`,
		attributes: []string{"claim.plan", "cookie.Beta", "descriptor.k e y", "header.x-app"},
		holds: []headgate.Attributes{
			{"header.x-app": "a"}, {"claim.plan": "pro"}, {"cookie.Beta": "1"}, {"descriptor.k e y": "n"},
		},
		not: []headgate.Attributes{{}, {"header.x-app": "b"}, {"header.plan": "pro"}},
	},
	{
		text: `number(header["x-rows"]) > 100`, attributes: []string{"header.x-rows"},
		holds: []headgate.Attributes{{"header.x-rows": "101"}},
		not: []headgate.Attributes{
			{}, {"header.x-rows": "100"}, {"header.x-rows": "many"}, {"header.x-rows": "99999999999999999999"},
		},
	},
	{
		text: `-5 <= number(user) && number(user) < 5 && number(user) != 0`, attributes: []string{"user"},
		holds: []headgate.Attributes{{"user": "-5"}, {"user": "4"}},
		not:   []headgate.Attributes{{}, {"user": "5"}, {"user": "-6"}, {"user": "0"}},
	},
	{
		text: `client == "k"`, attributes: []string{"client"},
		holds: []headgate.Attributes{{"api_key": "k", "user": "u"}, {"user": "k", "ip": "i"}, {"ip": "k"}, {"client": "k"}},
		not:   []headgate.Attributes{{}, {"api_key": "x", "user": "k"}},
	},
	{
		text: `["/a", "/b"].exists(p, path.startsWith(p + "/"))`, attributes: []string{"path"},
		holds: []headgate.Attributes{{"path": "/a/x"}, {"path": "/b/"}},
		not:   []headgate.Attributes{{"path": "/c/"}, {"path": "/a"}, {}},
	},
	{
		text: `["x", "y"].all(a, ["1", "2"].exists(b, user.contains(a + b)))`, attributes: []string{"user"},
		holds: []headgate.Attributes{{"user": "x1y2"}, {"user": "y1x1"}},
		not:   []headgate.Attributes{{"user": "x1x2"}, {}},
	},
	{
		text: `["a"].exists(x, [x].exists(x, x == user))`, attributes: []string{"user"},
		holds: []headgate.Attributes{{"user": "a"}}, not: []headgate.Attributes{{"user": "x"}},
	},
	{
		text:       `[1, 2].exists(n, size(user) == n) && [true, false].exists(b, b == (tier == "free"))`,
		attributes: []string{"tier", "user"},
		holds:      []headgate.Attributes{{"user": "é"}, {"user": "éé", "tier": "free"}},
		not:        []headgate.Attributes{{}, {"user": "abc"}},
	},
	{
		text: `path.matches("^/v[0-9]+/") && !path.endsWith("/")`, attributes: []string{"path"},
		holds: []headgate.Attributes{{"path": "/v12/x"}}, not: []headgate.Attributes{{"path": "/v/x"}, {"path": "/v1/"}, {}},
	},
	{
		text: `["^/a$", "^/b$"].exists(e, path.matches(e))`, attributes: []string{"path"},
		holds: []headgate.Attributes{{"path": "/b"}}, not: []headgate.Attributes{{"path": "/c"}},
	},
	{
		text: `(tier == "free" ? region : tenant) == "eu" && (tier == "free" ? true : user == "u") &&
			(tier == "x" ? 1 : 2) == 2`,
		attributes: []string{"region", "tenant", "tier", "user"},
		holds:      []headgate.Attributes{{"tier": "free", "region": "eu"}, {"tenant": "eu", "user": "u"}},
		not: []headgate.Attributes{
			{"tenant": "eu"}, {"tier": "free", "tenant": "eu"}, {"tier": "x", "tenant": "eu", "user": "u"},
		},
	},
	{
		text: `host.lowerAscii() == "é.example.com"`, attributes: []string{"host"},
		holds: []headgate.Attributes{{"host": "é.EXAMPLE.com"}}, not: []headgate.Attributes{{"host": "É.example.com"}},
	},
	{
		text: `user in [tenant, "x"] || user in []`, attributes: []string{"tenant", "user"},
		holds: []headgate.Attributes{{"user": "x"}, {"user": "t", "tenant": "t"}, {}},
		not:   []headgate.Attributes{{"user": "y", "tenant": "z"}},
	},
	{
		text: `user >= "m" && user <= "p" && !(user < "n") && !(user > "o")`, attributes: []string{"user"},
		holds: []headgate.Attributes{{"user": "n"}, {"user": "o"}},
		not:   []headgate.Attributes{{"user": "m"}, {"user": "p"}, {"user": "a"}, {"user": "z"}},
	},
	{
		text: `true`, holds: []headgate.Attributes{{}},
	},
}

func TestConditions(t *testing.T) {
	t.Parallel()
	for _, test := range conditionTests {
		c, problems := compileCondition(test.text)
		if len(problems) > 0 {
			t.Errorf("%s: %v", test.text, problems)
			continue
		}
		if !slices.Equal(c.Attributes, test.attributes) {
			t.Errorf("%s: reads %v, want %v", test.text, c.Attributes, test.attributes)
		}
		for _, a := range test.holds {
			if !c.Holds(a) {
				t.Errorf("%s: does not hold for %v", test.text, a)
			}
		}
		for _, a := range test.not {
			if c.Holds(a) {
				t.Errorf("%s: holds for %v", test.text, a)
			}
		}
	}
}

// celOf returns the condition as CEL itself evaluates it.
func celOf(t testing.TB, text string) func(headgate.Attributes) (bool, error) {
	t.Helper()
	environment, err := celEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	tree, issues := environment.Compile(text)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := environment.Program(tree)
	if err != nil {
		t.Fatal(err)
	}
	return func(a headgate.Attributes) (bool, error) {
		vars := map[string]any{}
		for _, name := range headgate.BuiltIn() {
			vars[name] = a[name]
		}
		vars["client"] = clientOf(a)
		for _, source := range attributeMaps {
			values := map[string]string{"x-app": "", "plan": "", "Beta": "", "k e y": "", "x-rows": ""}
			for name, value := range a {
				if rest, ok := strings.CutPrefix(name, source+"."); ok {
					values[rest] = value
				}
			}
			vars[source] = values
		}
		out, _, err := program.Eval(vars)
		if err != nil {
			return false, err
		}
		holds, _ := out.Value().(bool)
		return holds, nil
	}
}

// TestConditionsAgreeWithCEL compares the closures with CEL's interpreter.
func TestConditionsAgreeWithCEL(t *testing.T) {
	t.Parallel()
	values := []string{"", "a", "x", "k", "free", "eu", "legacy/1", "/a/b", "/v1/x", "101", "-3", "n", "é", "x1y2"}
	named := []string{"header.x-app", "claim.plan", "cookie.Beta", "descriptor.k e y", "header.x-rows"}
	names := slices.Concat(headgate.BuiltIn(), named)
	for _, test := range conditionTests {
		c, _ := compileCondition(test.text)
		reference := celOf(t, test.text)
		requests := slices.Concat(test.holds, test.not)
		for i := range 400 {
			a := headgate.Attributes{}
			for j, name := range names {
				if v := values[(i*(2*j+1)+i/len(values)+j)%len(values)]; v != "" {
					a[name] = v
				}
			}
			requests = append(requests, a)
		}
		for _, a := range requests {
			want, err := reference(a)
			if err != nil {
				t.Fatalf("%s: %v", test.text, err)
			}
			if got := c.Holds(a); got != want {
				t.Errorf("%s: got %t, CEL returns %t, for %v", test.text, got, want, a)
			}
		}
	}
}

// TestConditionReadings checks that a condition is evaluated for each reading of a request, so that no spelling evades it.
func TestConditionReadings(t *testing.T) {
	t.Parallel()
	c, problems := compileCondition(`path == "/admin" && method == "POST"`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "admin", When: c, By: headgate.Global, Limit: headgate.PerDay(1000)})
	if err != nil {
		t.Fatal(err)
	}
	applies := func(a headgate.Attributes) bool {
		d, err := limiter.Check(t.Context(), headgate.Request{Attributes: a})
		return err == nil && len(d.Limits) == 1
	}
	other := headgate.Attributes{
		"path": "/%61dmin", headgate.OtherPath: "/x?/admin", "method": "GET", headgate.OtherMethod: "POST",
	}
	if !applies(other) {
		t.Error("does not hold for the other reading")
	}
	anything := maps.Clone(other)
	anything[headgate.OtherMethod] = headgate.AnyMethod
	if !applies(anything) {
		t.Error("does not hold if it may be any method")
	}
	for _, without := range []string{headgate.OtherPath, headgate.OtherMethod} {
		a := maps.Clone(other)
		delete(a, without)
		if applies(a) {
			t.Errorf("holds without %s", without)
		}
	}
}

func TestConditionBounds(t *testing.T) {
	t.Parallel()
	list := func(n int) string { return "[" + strings.Repeat(`"a",`, n) + `"a"]` }
	for text, want := range map[string]string{
		`path == "` + strings.Repeat("a", 2048) + `"`:                                   "longer than 2048 characters",
		strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200):                    "nested more than 50 levels deep",
		strings.Repeat("!", 1000) + "true":                                              "",
		list(60) + `.all(x, ` + list(60) + `.all(y, x == y))`:                           "too large",
		`path.matches("x{900}")`:                                                        "too expensive",
		list(200) + `.exists(x, path.contains(x))`:                                      "too expensive",
		`[path, path, path].exists(x, [x + x].exists(y, [y + y].exists(z, z == path)))`: "",
	} {
		_, problems := compileCondition(text)
		switch {
		case want == "" && len(problems) > 0:
			t.Errorf("%.60s: %v", text, problems)
		case want != "" && (len(problems) != 1 || !strings.Contains(problems[0].text, want)):
			t.Errorf("%.60s: %v", text, problems)
		}
	}
}

func TestConditionDoesNotAllocate(t *testing.T) {
	c, _ := compileCondition(`path.startsWith("/api/") && header["x-app"] in ["a", "b"] &&
		number(header["x-rows"]) > 3 && path.matches("[0-9]$")`)
	a := headgate.Attributes{"path": "/api/1", "method": "GET", "header.x-app": "b", "header.x-rows": "4"}
	if !c.Holds(a) {
		t.Fatal("does not hold")
	}
	allocs := 1.
	for range 10 { // other goroutines of the process are counted too, so take the minimum
		allocs = min(allocs, testing.AllocsPerRun(100, func() { c.Holds(a) }))
	}
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

var sink bool

func BenchmarkCondition(b *testing.B) {
	const text = `user_agent.startsWith("legacy/") && !(region in ["eu", "uk"])`
	a := headgate.Attributes{"user_agent": "legacy/1", "region": "us", "path": "/api/v1/search", "method": "GET"}
	c, _ := compileCondition(text)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink = c.Holds(a)
		}
	})
	b.Run("CEL", func(b *testing.B) {
		environment, err := celEnvironment()
		if err != nil {
			b.Fatal(err)
		}
		tree, _ := environment.Compile(text)
		program, err := environment.Program(tree, cel.EvalOptions(cel.OptOptimize))
		if err != nil {
			b.Fatal(err)
		}
		vars := map[string]any{"user_agent": "legacy/1", "region": "us"}
		b.ReportAllocs()
		for b.Loop() {
			out, _, _ := program.Eval(vars)
			sink = out.Value() == true
		}
	})
	b.Run("compile", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c, _ = compileCondition(text)
		}
	})
}

func FuzzCondition(f *testing.F) {
	for _, test := range conditionTests {
		f.Add(test.text, "x", "/v1/x")
	}
	f.Fuzz(func(t *testing.T, text, value, path string) {
		c, problems := compileCondition(text)
		if len(problems) > 0 {
			for _, p := range problems {
				if p.offset < 0 || p.offset > len([]rune(text)) {
					t.Errorf("offset %d in %q", p.offset, text)
				}
			}
			return
		}
		a := headgate.Attributes{"path": path, "method": value, "user": value}
		for _, name := range c.Attributes {
			if _, ok := a[name]; !ok && strings.Contains(name, ".") {
				a[name] = value
			}
		}
		want, err := celOf(t, text)(a)
		if err != nil {
			return // a name that is not in the reference's maps
		}
		if got := c.Holds(a); got != want {
			t.Errorf("%s: got %t, CEL returns %t, for %v", text, got, want, a)
		}
	})
}
