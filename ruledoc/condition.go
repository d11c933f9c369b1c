package ruledoc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/headgate/headgate"
)

// Bounds of a condition.
const (
	maxConditionRunes = 2048
	maxConditionDepth = 50
)

// attributeMaps are the sources of attributes that are not built in.
var attributeMaps = []string{"header", "cookie", "claim", "descriptor"}

// totalFunctions are the CEL functions that return a value for all arguments, and so cannot fail at request time. Arithmetic
// (which may overflow), list indexes (which may be out of range) and conversions (which may be impossible) are left out.
var totalFunctions = map[string][]string{
	"_&&_": nil, "_||_": nil, "!_": nil, "_?_:_": nil, "_==_": nil, "_!=_": nil,
	"_<_":        {"less_int64", "less_string"},
	"_<=_":       {"less_equals_int64", "less_equals_string"},
	"_>_":        {"greater_int64", "greater_string"},
	"_>=_":       {"greater_equals_int64", "greater_equals_string"},
	"_+_":        {"add_string"},
	"@in":        {"in_list"},
	"_[_]":       {"index_map"},
	"size":       {"size_string", "string_size"},
	"startsWith": nil, "endsWith": nil, "contains": nil, "matches": nil,
	"@not_strictly_false": nil, // used by all and exists
}

// celEnvironment returns the CEL environment of conditions. It is created once, when the first condition is compiled.
var celEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	subset := env.NewLibrarySubset().SetDisableMacros(true)
	for _, name := range slices.Sorted(maps.Keys(totalFunctions)) {
		f := env.NewFunction(name)
		for _, id := range totalFunctions[name] {
			f.Overloads = append(f.Overloads, &env.Overload{ID: id})
		}
		subset.AddIncludedFunctions(f)
	}
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(subset)),
		cel.Macros(cel.AllMacro, cel.ExistsMacro),
		cel.HomogeneousAggregateLiterals(),
		cel.ParserExpressionSizeLimit(maxConditionRunes),
		cel.ParserRecursionLimit(maxConditionDepth),
		cel.Function("number", cel.Overload("number_string", []*cel.Type{cel.StringType}, cel.IntType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.Int(wholeNumber(textIn(v))) }))),
		cel.Function("lowerAscii", cel.MemberOverload("string_lower_ascii", []*cel.Type{cel.StringType}, cel.StringType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.String(lowerASCII(textIn(v))) }))),
	}
	for _, name := range headgate.BuiltIn() {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	for _, name := range attributeMaps {
		options = append(options, cel.Variable(name, cel.MapType(cel.StringType, cel.StringType)))
	}
	return cel.NewCustomEnv(options...)
})

// textIn returns the text of a value that CEL has type-checked to be a string.
func textIn(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}

// condition decodes and compiles a CEL expression.
func (d *decoder) condition(n *node, key string) headgate.Condition {
	s, ok := d.Text(n, key)
	if !ok {
		return headgate.Condition{}
	}
	if c, ok := d.cache.conditions[s]; ok {
		return c
	}
	c, problems := compileCondition(s)
	for _, p := range problems {
		line, column := d.Source.Locate(n, p.offset)
		d.BadAt(line, column, key+": "+p.text)
	}
	if len(problems) == 0 {
		d.cache.conditions[s] = c
	}
	return c
}

// conditionProblem is a problem of a condition at a character offset.
type conditionProblem struct {
	offset int
	text   string
}

// compileCondition compiles a condition. CEL parses and type-checks it; closures that neither allocate nor fail evaluate it for
// each request.
func compileCondition(s string) (headgate.Condition, []conditionProblem) {
	fail := func(format string, args ...any) (headgate.Condition, []conditionProblem) {
		return headgate.Condition{}, []conditionProblem{{0, fmt.Sprintf(format, args...)}}
	}
	if strings.TrimSpace(s) == "" {
		return fail("must not be empty: remove the key, or write a condition like user_agent.startsWith(\"legacy/\")")
	}
	environment, err := celEnvironment()
	if err != nil {
		return fail("%s", err)
	}
	tree, issues := environment.Compile(s)
	if issues != nil && issues.Err() != nil {
		return headgate.Condition{}, explainIssues(s, issues.Errors())
	}
	c := &compiler{tree: tree.NativeRep(), names: map[string]bool{}}
	if out := tree.OutputType(); !out.IsExactType(cel.BoolType) {
		return fail("must be true or false, but is %s: compare it with a value", typeWord(out.String()))
	}
	holds := c.boolean(c.tree.Expr())
	if c.problem != nil {
		return headgate.Condition{}, []conditionProblem{*c.problem}
	}
	if c.cost() > maxConditionCost {
		return fail("too expensive: the estimated cost is %d steps, must be at most %d: use startsWith, endsWith, contains or "+
			"match.path instead of matches, begin regular expressions with ^, and avoid nested repetitions", c.cost(), maxConditionCost)
	}
	return headgate.Condition{Text: s, Attributes: slices.Sorted(maps.Keys(c.names)), Steps: c.cost(), Holds: holds}, nil
}
