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

// conditionMaps are where attributes that are not built in come from.
var conditionMaps = []string{"header", "cookie", "claim", "descriptor"}

// totalFunctions are those of CEL that have a value for all arguments, and so cannot fail while requests are decided.
// Arithmetic may overflow, an index may be out of range and a conversion may not be possible: they are left out.
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
	"@not_strictly_false": nil, // what all and exists are made of
}

// celEnvironment is CEL as conditions know it. It is made once, when the first condition is read.
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
	for _, name := range conditionMaps {
		options = append(options, cel.Variable(name, cel.MapType(cel.StringType, cel.StringType)))
	}
	return cel.NewCustomEnv(options...)
})

// textIn is the text of a value that CEL has found to be one.
func textIn(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}

// condition reads a line of CEL.
func (d *decoder) condition(n *node, key string) headgate.Condition {
	s, ok := d.Text(n, key)
	if !ok {
		return headgate.Condition{}
	}
	if c, ok := d.known.conditions[s]; ok {
		return c
	}
	c, problems := compileCondition(s)
	for _, p := range problems {
		line, column := d.Source.Locate(n, p.offset)
		d.BadAt(line, column, key+": "+p.text)
	}
	if len(problems) == 0 {
		d.known.conditions[s] = c
	}
	return c
}

// conditionProblem is what is wrong with a condition, and at which of its characters.
type conditionProblem struct {
	offset int
	text   string
}

// compileCondition makes a condition. CEL reads and checks it; what runs for each request is made of closures that take
// no memory and have no way to fail.
func compileCondition(s string) (headgate.Condition, []conditionProblem) {
	fail := func(format string, args ...any) (headgate.Condition, []conditionProblem) {
		return headgate.Condition{}, []conditionProblem{{0, fmt.Sprintf(format, args...)}}
	}
	if strings.TrimSpace(s) == "" {
		return fail("the condition is empty: remove the key, or write one like user_agent.startsWith(\"legacy/\")")
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
		return fail("a condition is true or false, and this is %s: compare it with something", typeWord(out.String()))
	}
	holds := c.boolean(c.tree.Expr())
	if c.problem != nil {
		return headgate.Condition{}, []conditionProblem{*c.problem}
	}
	if c.cost() > maxConditionCost {
		return fail("the condition may take too long: its estimated cost is %d steps, and the budget is %d: use startsWith, "+
			"endsWith, contains or match.path in place of matches, begin regular expressions with ^, and repeat nothing that "+
			"repeats itself", c.cost(), maxConditionCost)
	}
	return headgate.Condition{Text: s, Attributes: slices.Sorted(maps.Keys(c.names)), Steps: c.cost(), Holds: holds}, nil
}
