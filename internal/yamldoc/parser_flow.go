package yamldoc

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// flow parses {…} or […].
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
		p.fail(t, "unexpected comma: remove it")
		return
	case token.UnknownType:
		p.unclosed(open, t)
		return
	}
	key := p.key(n)
	if t := p.peek(0); t.Type != token.MappingValueType {
		if t.Type == token.CollectEntryType || t.Type == token.MappingEndType {
			p.fail(t, "%q: no value: write key: value, with a space after the colon", key.Text)
		} else {
			p.unclosed(open, t)
		}
		return
	}
	colon := p.next()
	if t := p.peek(0).Type; t == token.CollectEntryType || t == token.MappingEndType {
		n.add(key, p.node(colon, Null))
		return
	}
	n.add(key, p.flowValue(open))
}

func (p *parser) flowValue(open *token.Token) *Node {
	t := p.peek(0)
	switch {
	case t.Type == token.CollectEntryType:
		p.fail(t, "unexpected comma: remove it")
	case t.Type == token.UnknownType, p.peek(1).Type == token.MappingValueType:
		p.unclosed(open, t)
	case t.Type == token.SequenceEntryType, t.Type == token.LiteralType, t.Type == token.FoldedType:
		p.fail(t, "dashes and blocks are not supported within %s: quote the value", open.Value)
	}
	if p.failed {
		return &Node{Line: 1, Column: 1}
	}
	return p.value(0)
}

// unclosed reports a missing comma, quote or closing bracket in {…} or […].
func (p *parser) unclosed(open, t *token.Token) {
	closing := map[string]string{"{": "}", "[": "]"}[open.Value]
	where := fmt.Sprintf("the %s at line %d, column %d", open.Value, open.Position.Line, open.Position.Column)
	switch {
	case t.Type == token.UnknownType:
		p.failAt(open.Position.Line, open.Position.Column, "%s is never closed: add %s", open.Value, closing)
	case t.Type == token.MappingStartType && open.Value == "{":
		p.fail(t, "unexpected %s within %s: quote the whole value: path: \"/users/{id}\"", t.Value, where)
	default:
		p.fail(t, "missing , or %s before this, within %s; a value that contains one of {}[], or a colon and a space, "+
			"needs quotes", closing, where)
	}
}

func (p *parser) anchor(key int) *Node {
	t, name := p.next(), p.next()
	if p.peek(1).Type == token.MappingValueType && p.peek(0).Position.Line == t.Position.Line {
		p.fail(t, "this anchor would apply to the key only: move it to the line above")
	}
	if after := p.peek(0); ends(after) || after.Type == token.AnchorType {
		p.fail(t, "the anchor has no value")
	}
	n := p.value(key)
	p.anchors[name.Value] = n
	return n
}

// alias returns the node of its anchor, and counts the node's whole tree against maxNodes.
func (p *parser) alias() *Node {
	t, name := p.next(), p.next()
	if p.peek(0).Type == token.MappingValueType {
		p.fail(t, "an alias cannot be a key")
	}
	n := p.anchors[name.Value]
	if n == nil {
		p.fail(t, "anchor &%s not found before this alias; text that begins with * needs quotes", name.Value)
		return &Node{Line: 1, Column: 1}
	}
	p.grow(t, n.size)
	return n
}
