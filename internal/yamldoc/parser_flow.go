package yamldoc

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// flow reads {…} or […].
func (p *parser) flow() *Node {
	open := p.next()
	n := p.node(open, List)
	end := token.SequenceEndType
	if open.Type == token.MappingStartType {
		n.Kind, end = Mapping, token.MappingEndType
	}
	for p.peek(0).Type != end && !p.failed {
		if n.Kind == Mapping {
			p.flowEntry(n, open)
		} else {
			n.add(nil, p.flowValue(open))
		}
		if t := p.peek(0); t.Type == token.CollectEntryType {
			p.next()
		} else if t.Type != end && !p.failed {
			p.unclosed(open, t)
		}
	}
	p.next()
	return n
}

func (p *parser) flowEntry(n *Node, open *token.Token) {
	t := p.peek(0)
	switch t.Type {
	case token.CollectEntryType:
		p.fail(t, "there is a comma too many")
		return
	case token.UnknownType:
		p.unclosed(open, t)
		return
	}
	key := p.key(n)
	if t := p.peek(0); t.Type != token.MappingValueType {
		if t.Type == token.CollectEntryType || t.Type == token.MappingEndType {
			p.fail(t, "%q has no value: write key: value, with a space after the colon", key.Text)
		} else {
			p.unclosed(open, t)
		}
		return
	}
	colon := p.next()
	if t := p.peek(0).Type; t == token.CollectEntryType || t == token.MappingEndType {
		n.add(key, p.node(colon, Nothing))
		return
	}
	n.add(key, p.flowValue(open))
}

func (p *parser) flowValue(open *token.Token) *Node {
	t := p.peek(0)
	switch {
	case t.Type == token.CollectEntryType:
		p.fail(t, "there is a comma too many")
	case t.Type == token.UnknownType, p.peek(1).Type == token.MappingValueType:
		p.unclosed(open, t)
	case t.Type == token.SequenceEntryType, t.Type == token.LiteralType, t.Type == token.FoldedType:
		p.fail(t, "within %s write no dashes or blocks: put the value in quotes", open.Value)
	}
	if p.failed {
		return &Node{Line: 1, Column: 1}
	}
	return p.value(0)
}

// unclosed says what is missing in a {…} or […].
func (p *parser) unclosed(open, t *token.Token) {
	closing := map[string]string{"{": "}", "[": "]"}[open.Value]
	where := fmt.Sprintf("the %s of line %d, column %d", open.Value, open.Position.Line, open.Position.Column)
	switch {
	case t.Type == token.UnknownType:
		p.failAt(open.Position.Line, open.Position.Column, "the %s has no %s", open.Value, closing)
	case t.Type == token.MappingStartType && open.Value == "{":
		p.fail(t, "a %s within %s needs quotes around the whole value: path: \"/users/{id}\"", t.Value, where)
	default:
		p.fail(t, "there is a , or %s missing before this, for %s; a value with one of {}[], or with a colon and a space "+
			"in it needs quotes", closing, where)
	}
}

func (p *parser) anchor(key int) *Node {
	t, name := p.next(), p.next()
	if p.peek(1).Type == token.MappingValueType && p.peek(0).Position.Line == t.Position.Line {
		p.fail(t, "an anchor here would name the key alone: put it on the line before")
	}
	if after := p.peek(0); ends(after) || after.Type == token.AnchorType {
		p.fail(t, "the anchor has no value")
	}
	n := p.value(key)
	p.anchors[name.Value] = n
	return n
}

// alias is the very node that its anchor named; the bound counts it as if it were written out.
func (p *parser) alias() *Node {
	t, name := p.next(), p.next()
	if p.peek(0).Type == token.MappingValueType {
		p.fail(t, "an alias cannot be a key")
	}
	n := p.anchors[name.Value]
	if n == nil {
		p.fail(t, "there is no anchor &%s before this; text that begins with a star needs quotes", name.Value)
		return &Node{Line: 1, Column: 1}
	}
	p.grow(t, n.size)
	return n
}
