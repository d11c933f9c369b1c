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
func (c *compiler) text(e ast.Expr) value[string] { return build(c, e, c.ownText) }

func (c *compiler) ownText(e ast.Expr) value[string] {
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
			c.fail(args[1], "the name in brackets must be written out: header[\"x-app\"]")
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

// member is header["x"] or header.x.
func (c *compiler) member(e, operand ast.Expr, name string) value[string] {
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

func (c *compiler) attribute(e ast.Expr, name string) value[string] {
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
func (c *compiler) number(e ast.Expr) value[int64] { return build(c, e, c.ownNumber) }

func (c *compiler) ownNumber(e ast.Expr) value[int64] {
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
