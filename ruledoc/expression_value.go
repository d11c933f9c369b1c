package ruledoc

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
)

// text compiles an expression whose value is text.
func (c *compiler) text(e ast.Expr) value[string] { return build(c, e, c.compileText) }

func (c *compiler) compileText(e ast.Expr) value[string] {
	switch e.Kind() {
	case ast.LiteralKind:
		s, _ := literalText(e)
		c.characters += len(s)
		return func(reading) string { return s }
	case ast.IdentKind:
		return c.attribute(e, e.AsIdent())
	case ast.SelectKind:
		return c.member(e, e.AsSelect().Operand(), e.AsSelect().FieldName())
	}
	switch name, args := call(e); name {
	case "_[_]":
		name, ok := literalText(args[1])
		if !ok {
			c.fail(args[1], "the name in brackets must be a literal: header[\"x-app\"]")
		}
		return c.member(e, args[0], name)
	case "_+_":
		a, b := c.text(args[0]), c.text(args[1])
		return func(r reading) string { return a(r) + b(r) }
	case "lowerAscii":
		a := c.text(args[0])
		return func(r reading) string { return lowerASCII(a(r)) }
	}
	return nil
}

// member compiles header["x"] or header.x.
func (c *compiler) member(e, operand ast.Expr, name string) value[string] {
	if operand.Kind() != ast.IdentKind || !slices.Contains(attributeMaps, operand.AsIdent()) {
		c.fail(e, "only header, cookie, claim and descriptor support names in brackets or after a dot")
		return func(reading) string { return "" }
	}
	source := operand.AsIdent()
	switch {
	case name == "":
		c.fail(e, "%s requires a name in its brackets", source)
	case source == "header" && name != strings.ToLower(name):
		c.fail(e, "header names must be lower case: header[%q]", strings.ToLower(name))
	}
	return c.attribute(e, source+"."+name)
}

// attribute compiles the value of an attribute.
func (c *compiler) attribute(e ast.Expr, name string) value[string] {
	c.names[name] = true
	c.characters += attributeSize
	switch {
	case slices.Contains(attributeMaps, name):
		c.fail(e, "%s requires a name: %s[\"x\"]", name, name)
	case name == "client":
		return clientOf
	}
	return func(r reading) string { return r[name] }
}

func clientOf(r reading) string {
	_, value := r.Client()
	return value
}

// number compiles an expression whose value is a whole number.
func (c *compiler) number(e ast.Expr) value[int64] { return build(c, e, c.compileNumber) }

func (c *compiler) compileNumber(e ast.Expr) value[int64] {
	if e.Kind() == ast.LiteralKind {
		v, _ := e.AsLiteral().(types.Int)
		return func(reading) int64 { return int64(v) }
	}
	switch name, args := call(e); name {
	case "number":
		a := c.text(args[0])
		return func(r reading) int64 { return wholeNumber(a(r)) }
	case "size":
		a := c.text(args[0])
		return func(r reading) int64 { return int64(utf8.RuneCountInString(a(r))) }
	}
	return nil
}

// wholeNumber parses a whole number. It returns 0 for any other text.
func wholeNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// lowerASCII converts A to Z to lower case and leaves all other characters unchanged.
func lowerASCII(s string) string {
	if !strings.ContainsAny(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		return s
	}
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}
