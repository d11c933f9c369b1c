package ruledoc

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/headgate/headgate"
)

// The cost of a condition is the maximum number of steps to evaluate it for one reading of a request, whatever the
// attributes are. A step is one instruction of a regular expression for one character, about 6 ns; comparing and searching
// texts processes charactersPerStep characters in that time.
const (
	// maxConditionCost corresponds to 18 live instructions of regular expressions over the longest attribute, or to about 150
	// comparisons with it.
	maxConditionCost = 150_000

	maxConditionNodes = 2_000
	charactersPerStep = 8
	// attributeSize is the longest attribute that a caller of the check API can send. Proxies send shorter ones.
	attributeSize = 8 << 10
)

// reading is one interpretation of a request's attributes; package headgate evaluates a condition for each of them (see
// headgate.OtherPath).
type reading = headgate.Attributes

// value is a compiled expression that returns a bool, a string or an int64.
type value[V any] func(r reading) V

// compiler compiles a type-checked tree to closures. Each method takes expressions of one type, which CEL has checked.
type compiler struct {
	tree  *ast.AST
	names map[string]bool
	scope []binding
	nodes int
	// characters is the total length of all texts that are compared or searched; steps is the cost of regular expressions.
	characters, steps int
	problem           *conditionProblem
}

// binding is the value of a variable of all or exists.
type binding struct {
	name  string
	value ast.Expr
}

// fail records a problem at an expression, unless there is one already.
func (c *compiler) fail(e ast.Expr, format string, args ...any) {
	if c.problem == nil {
		offset := 0
		if place, ok := c.tree.SourceInfo().GetOffsetRange(e.ID()); ok {
			offset = int(place.Start)
		}
		c.problem = &conditionProblem{offset, fmt.Sprintf(format, args...)}
	}
}

// enter counts a node and reports whether compilation can continue. All and exists repeat their body, so the number of nodes
// is bounded.
func (c *compiler) enter(e ast.Expr) bool {
	if c.nodes++; c.nodes > maxConditionNodes {
		c.fail(e, "the condition is too large: split the rule")
	}
	return c.problem == nil
}

// build compiles an expression of type V. It handles variables and ?: itself, and calls compile for the rest; compile returns
// nil for an expression that type V does not support.
func build[V any](c *compiler, e ast.Expr, compile func(ast.Expr) value[V]) value[V] {
	invalid := func(reading) (zero V) { return zero }
	if !c.enter(e) {
		return invalid
	}
	if bound, outer, ok := c.bound(e); ok {
		defer c.leave(outer)
		return build(c, bound, compile)
	}
	if name, args := call(e); name == "_?_:_" {
		q, a, b := c.boolean(args[0]), build(c, args[1], compile), build(c, args[2], compile)
		return func(r reading) V {
			if q(r) {
				return a(r)
			}
			return b(r)
		}
	}
	if compiled := compile(e); compiled != nil {
		return compiled
	}
	if name, _ := call(e); name != "" {
		c.fail(e, "%s is not available in conditions", name)
	}
	c.fail(e, "this is not available in conditions")
	return invalid
}

// call returns the function or operator that an expression calls, or "", and its arguments with the target first.
func call(e ast.Expr) (name string, args []ast.Expr) {
	if e.Kind() != ast.CallKind {
		return "", nil
	}
	call := e.AsCall()
	if call.IsMemberFunction() {
		return call.FunctionName(), slices.Concat([]ast.Expr{call.Target()}, call.Args())
	}
	return call.FunctionName(), call.Args()
}

// boolean compiles an expression that is true or false.
func (c *compiler) boolean(e ast.Expr) value[bool] { return build(c, e, c.compileBoolean) }

func (c *compiler) compileBoolean(e ast.Expr) value[bool] {
	switch e.Kind() {
	case ast.LiteralKind:
		v := e.AsLiteral() == types.True
		return func(reading) bool { return v }
	case ast.ComprehensionKind:
		return c.quantifier(e.AsComprehension())
	}
	switch name, args := call(e); name {
	case "_&&_":
		a, b := c.boolean(args[0]), c.boolean(args[1])
		return func(r reading) bool { return a(r) && b(r) }
	case "_||_":
		a, b := c.boolean(args[0]), c.boolean(args[1])
		return func(r reading) bool { return a(r) || b(r) }
	case "!_":
		return not(c.boolean(args[0]))
	case "_==_":
		return c.equal(args[0], args[1])
	case "_!=_":
		return not(c.equal(args[0], args[1]))
	case "_<_", "_<=_", "_>_", "_>=_":
		return c.order(name, args[0], args[1])
	case "@in":
		return c.in(args[0], args[1])
	case "matches":
		return c.matches(args[0], args[1])
	case "startsWith":
		return both(strings.HasPrefix, c.text(args[0]), c.text(args[1]))
	case "endsWith":
		return both(strings.HasSuffix, c.text(args[0]), c.text(args[1]))
	case "contains":
		return both(strings.Contains, c.text(args[0]), c.text(args[1]))
	}
	return nil
}

func not(a value[bool]) value[bool] { return func(r reading) bool { return !a(r) } }

// both compiles a test of two texts.
func both(test func(a, b string) bool, a, b value[string]) value[bool] {
	return func(r reading) bool { return test(a(r), b(r)) }
}

// equal compiles x == y.
func (c *compiler) equal(x, y ast.Expr) value[bool] {
	switch c.tree.GetType(x.ID()).Kind() {
	case types.StringKind:
		c.checkKey(x, y)
		c.checkKey(y, x)
		return same(c.text(x), c.text(y))
	case types.IntKind:
		return same(c.number(x), c.number(y))
	case types.BoolKind:
		return same(c.boolean(x), c.boolean(y))
	}
	c.fail(x, "only texts, numbers, true and false can be compared")
	return func(reading) bool { return false }
}

func same[V comparable](a, b value[V]) value[bool] {
	return func(r reading) bool { return a(r) == b(r) }
}

// checkKey rejects a comparison of api_key with an API key. It could never be true, because requests have the key's hash.
func (c *compiler) checkKey(x, y ast.Expr) {
	if x.Kind() != ast.IdentKind || x.AsIdent() != "api_key" {
		return
	}
	if key, ok := literalText(y); ok && headgate.EnsureKeyHash(key) != key {
		c.fail(y, "keys are compared as hashes: write the hash, which headgate explain api_key=KEY shows, or use match: {api_key: KEY}")
	}
}

// order compiles <, <=, > and >=. Wanted lists, for less, equal and greater, whether the operator holds.
func (c *compiler) order(operator string, x, y ast.Expr) value[bool] {
	wanted := map[string][3]bool{
		"_<_": {true, false, false}, "_<=_": {true, true, false}, "_>_": {false, false, true}, "_>=_": {false, true, true},
	}[operator]
	if c.tree.GetType(x.ID()).Kind() == types.IntKind {
		return ordered(wanted, c.number(x), c.number(y))
	}
	return ordered(wanted, c.text(x), c.text(y))
}

func ordered[V cmp.Ordered](wanted [3]bool, a, b value[V]) value[bool] {
	return func(r reading) bool { return wanted[1+cmp.Compare(a(r), b(r))] }
}

// in compiles x in [...].
func (c *compiler) in(x, y ast.Expr) value[bool] {
	found := func(reading) bool { return false }
	if y.Kind() != ast.ListKind {
		c.fail(y, "in requires a literal list: in [\"a\", \"b\"]")
		return found
	}
	elements := y.AsList().Elements()
	if texts, ok := literalTexts(elements); ok && len(texts) > 0 && c.tree.GetType(x.ID()).Kind() == types.StringKind {
		for _, element := range elements {
			c.checkKey(x, element)
		}
		c.nodes += len(texts)
		c.characters += len(texts)
		a := c.text(x)
		return func(r reading) bool { return slices.Contains(texts, a(r)) }
	}
	for _, element := range slices.Backward(elements) {
		a, rest := c.equal(x, element), found
		found = func(r reading) bool { return a(r) || rest(r) }
	}
	return found
}

// literalTexts returns the values of text literals, or false if one of the expressions is something else.
func literalTexts(elements []ast.Expr) ([]string, bool) {
	texts := make([]string, len(elements))
	for i, e := range elements {
		s, ok := literalText(e)
		if !ok {
			return nil, false
		}
		texts[i] = s
	}
	return texts, true
}

// literalText returns the value of a text literal.
func literalText(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// matches compiles x.matches(y).
func (c *compiler) matches(x, y ast.Expr) value[bool] {
	never := func(reading) bool { return false }
	before := c.characters
	a := c.text(x)
	size := c.characters - before
	if value, outer, ok := c.bound(y); ok {
		y = value
		c.leave(outer)
	}
	s, ok := literalText(y)
	if !ok {
		c.fail(y, "matches requires a literal regular expression")
		return never
	}
	expression, err := regexp.Compile(s)
	if err != nil {
		c.fail(y, "%s", strings.Replace(err.Error(), "error parsing regexp", "invalid regular expression", 1))
		return never
	}
	if c.cost() <= maxConditionCost { // otherwise it is rejected anyway
		c.steps += size * regexpWidth(s)
	}
	return func(r reading) bool { return expression.MatchString(a(r)) }
}

// cost returns the maximum number of steps of the condition.
func (c *compiler) cost() int { return c.steps + c.characters/charactersPerStep }

// quantifier compiles [...].all(x, …) and [...].exists(x, …) by compiling the body for each element.
func (c *compiler) quantifier(e ast.ComprehensionExpr) value[bool] {
	all := e.AccuInit().Kind() == ast.LiteralKind && e.AccuInit().AsLiteral() == types.True
	result := func(reading) bool { return all }
	elements := e.IterRange()
	if elements.Kind() != ast.ListKind || e.LoopStep().Kind() != ast.CallKind {
		c.fail(e.IterRange(), "all and exists require a literal list: [\"/a\", \"/b\"].exists(p, …)")
		return result
	}
	body := e.LoopStep().AsCall().Args()[1]
	for _, element := range slices.Backward(elements.AsList().Elements()) {
		c.scope = append(c.scope, binding{e.IterVar(), element})
		one, rest := c.boolean(body), result
		c.scope = c.scope[:len(c.scope)-1]
		if all {
			result = func(r reading) bool { return one(r) && rest(r) }
		} else {
			result = func(r reading) bool { return one(r) || rest(r) }
		}
	}
	return result
}

// bound returns the value of a variable of all or exists, and switches to the scope in which the value was written. The caller
// must restore the outer scope with leave.
func (c *compiler) bound(e ast.Expr) (value ast.Expr, outer []binding, ok bool) {
	if e.Kind() != ast.IdentKind {
		return nil, nil, false
	}
	for i, b := range slices.Backward(c.scope) {
		if b.name == e.AsIdent() {
			outer = c.scope
			c.scope = c.scope[:i:i]
			return b.value, outer, true
		}
	}
	return nil, nil, false
}

func (c *compiler) leave(scope []binding) { c.scope = scope }
