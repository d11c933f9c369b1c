package ruledoc

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
)

// text makes an expression whose value is text.
func (c *compiler) text(e ast.Expr) textOf {
	none := func(reading) string { return "" }
	if !c.enter(e) {
		return none
	}
	switch e.Kind() {
	case ast.LiteralKind:
		s, _ := literalText(e)
		c.characters += len(s)
		return func(reading) string { return s }
	case ast.IdentKind:
		if value, outer, ok := c.bound(e); ok {
			defer c.leave(outer)
			return c.text(value)
		}
		return c.attribute(e, e.AsIdent())
	case ast.SelectKind:
		return c.member(e, e.AsSelect().Operand(), e.AsSelect().FieldName())
	case ast.CallKind:
		return c.textCall(e)
	}
	c.fail(e, "this is not available in conditions")
	return none
}

func (c *compiler) textCall(e ast.Expr) textOf {
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case "_[_]":
		name, ok := literalText(args[1])
		if !ok {
			c.fail(args[1], "the name in brackets must be written out: header[\"x-app\"]")
		}
		return c.member(e, args[0], name)
	case "_+_":
		a, b := c.text(args[0]), c.text(args[1])
		return func(r reading) string { return a(r) + b(r) }
	case "lowerAscii":
		a := c.text(call.Target())
		return func(r reading) string { return lowerASCII(a(r)) }
	case "_?_:_":
		q, a, b := c.boolean(args[0]), c.text(args[1]), c.text(args[2])
		return func(r reading) string {
			if q(r) {
				return a(r)
			}
			return b(r)
		}
	}
	c.fail(e, "%s is not available in conditions", call.FunctionName())
	return func(reading) string { return "" }
}

// member is header["x"] or header.x.
func (c *compiler) member(e, operand ast.Expr, name string) textOf {
	if operand.Kind() != ast.IdentKind || !slices.Contains(conditionMaps, operand.AsIdent()) {
		c.fail(e, "only header, cookie, claim and descriptor have names in brackets or after a dot")
		return func(reading) string { return "" }
	}
	source := operand.AsIdent()
	switch {
	case name == "":
		c.fail(e, "%s needs a name in its brackets", source)
	case source == "header" && name != strings.ToLower(name):
		c.fail(e, "names of headers are written in lower case here: header[%q]", strings.ToLower(name))
	}
	return c.attribute(e, source+"."+name)
}

func (c *compiler) attribute(e ast.Expr, name string) textOf {
	c.names[name] = true
	c.characters += attributeSize
	switch {
	case slices.Contains(conditionMaps, name):
		c.fail(e, "%s wants a name: %s[\"x\"]", name, name)
	case name == "client":
		return clientOf
	}
	return func(r reading) string { return r[name] }
}

func clientOf(r reading) string {
	_, value := r.Client()
	return value
}

// number makes an expression whose value is a whole number.
func (c *compiler) number(e ast.Expr) numberOf {
	none := func(reading) int64 { return 0 }
	if !c.enter(e) {
		return none
	}
	switch e.Kind() {
	case ast.LiteralKind:
		v, _ := e.AsLiteral().(types.Int)
		return func(reading) int64 { return int64(v) }
	case ast.IdentKind:
		if value, outer, ok := c.bound(e); ok {
			defer c.leave(outer)
			return c.number(value)
		}
	case ast.CallKind:
		return c.numberCall(e)
	}
	c.fail(e, "this is not available in conditions")
	return none
}

func (c *compiler) numberCall(e ast.Expr) numberOf {
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case "number":
		a := c.text(args[0])
		return func(r reading) int64 { return wholeNumber(a(r)) }
	case "size":
		if call.IsMemberFunction() {
			args = []ast.Expr{call.Target()}
		}
		a := c.text(args[0])
		return func(r reading) int64 { return int64(utf8.RuneCountInString(a(r))) }
	case "_?_:_":
		q, a, b := c.boolean(args[0]), c.number(args[1]), c.number(args[2])
		return func(r reading) int64 {
			if q(r) {
				return a(r)
			}
			return b(r)
		}
	}
	c.fail(e, "%s is not available in conditions", call.FunctionName())
	return func(reading) int64 { return 0 }
}

// wholeNumber is 0 for what is no whole number.
func wholeNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// lowerASCII leaves all but A to Z as it is.
func lowerASCII(s string) string {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			continue
		}
		b := []byte(s)
		for j, c := range b {
			if 'A' <= c && c <= 'Z' {
				b[j] = c + ('a' - 'A')
			}
		}
		return string(b)
	}
	return s
}
