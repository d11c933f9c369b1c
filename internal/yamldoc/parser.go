package yamldoc

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// Bounds that keep a hostile document from costing more than its size.
const (
	maxDepth = 32
	maxNodes = 2_000_000 // values of a document, those that aliases repeat included
)

// Parse reads the documents of a source that was checked; JSON is YAML. The tokens are the library's. The tree is our
// own: the library's parser takes time in the square of a mapping's keys and a stack frame for each of them, which a
// file of some megabytes turns into a crash, and every value here has to know where it begins. After an error it reads
// no further.
func Parse(s Source) (documents []*Node, problems []*Error) {
	p := &parser{name: s.Name, anchors: map[string]*Node{}}
	defer func() {
		if recover() != nil { // a bug of the tokenizer's must not take a running server down
			const unreadable = "this is no YAML that can be read; if a YAML checker finds nothing wrong, write it as JSON"
			documents, problems = nil, []*Error{{File: s.Name, Line: 1, Column: 1, Problem: unreadable}}
		}
	}()
	tokens := lexer.Tokenize(string(s.Data))
	p.tokens = tokens[:0]
	for _, t := range tokens {
		if t.Type == token.InvalidType {
			p.failAt(t.Position.Line, t.Position.Column, "%s", explainToken(t))
			break
		}
		if t.Type != token.CommentType {
			p.tokens = append(p.tokens, t)
		}
	}
	invalid := p.problems
	p.problems, p.failed = nil, false
	for p.more() && !p.failed {
		p.document()
	}
	// What the tokenizer stumbles over comes last in the file but first in cause.
	if len(invalid) > 0 {
		return nil, invalid
	}
	if p.failed {
		return nil, p.problems
	}
	return p.documents, p.problems
}

type parser struct {
	name      string
	tokens    []*token.Token
	at        int
	depth     int
	nodes     int
	anchors   map[string]*Node
	documents []*Node
	problems  []*Error
	failed    bool
}

func (p *parser) more() bool { return p.at < len(p.tokens) }

// peek is the token that is k ahead, or one of no type behind the last.
func (p *parser) peek(k int) *token.Token {
	if p.at+k < len(p.tokens) && !p.failed {
		return p.tokens[p.at+k]
	}
	return &token.Token{Type: token.UnknownType, Position: &token.Position{}}
}

func (p *parser) next() *token.Token {
	t := p.peek(0)
	p.at++
	return t
}

func (p *parser) failAt(line, column int, format string, args ...any) {
	if !p.failed {
		p.failed = true
		problem := fmt.Sprintf(format, args...)
		p.problems = append(p.problems, &Error{File: p.name, Line: max(line, 1), Column: max(column, 1), Problem: problem})
	}
}

func (p *parser) fail(t *token.Token, format string, args ...any) {
	if t.Type == token.UnknownType && len(p.tokens) > 0 {
		t = p.tokens[len(p.tokens)-1]
	}
	p.failAt(t.Position.Line, t.Position.Column, format, args...)
}

func (p *parser) document() {
	switch t := p.peek(0); t.Type {
	case token.DirectiveType:
		p.fail(t, "a line that begins with %% is a directive, which is not needed here: remove it, or use quotes")
		return
	case token.DocumentHeaderType, token.DocumentEndType:
		p.next()
		return
	}
	p.anchors = map[string]*Node{}
	n := p.value(0)
	if t := p.peek(0); p.more() && !p.failed && t.Type != token.DocumentHeaderType && t.Type != token.DocumentEndType {
		p.stray(t)
	}
	p.documents = append(p.documents, n)
}

// ends says whether a token is not part of what stands at a column any more.
func ends(t *token.Token) bool {
	switch t.Type {
	case token.UnknownType, token.DocumentHeaderType, token.DocumentEndType, token.DirectiveType:
		return true
	}
	return false
}

const tooDeep = "this line goes on with the value of the line above, because it is indented deeper: line the key up, " +
	"or put the value in quotes"

// value reads a value that begins at the next token; key is the line of the key it belongs to, or 0.
func (p *parser) value(key int) *Node {
	t := p.peek(0)
	if p.depth++; p.depth > maxDepth {
		p.fail(t, "values are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	switch t.Type {
	case token.AnchorType:
		return p.anchor(key)
	case token.AliasType:
		return p.alias()
	case token.TagType:
		p.fail(t, "a value that begins with ! is a tag in YAML: put the whole value in quotes")
	case token.MappingKeyType:
		p.fail(t, "a key is written without a question mark: key: value")
	case token.SequenceEntryType:
		if t.Position.Line == key {
			p.fail(t, "a list with dashes begins on a line of its own; on one line write [a, b]; text that begins with a "+
				"dash needs quotes")
		}
		return p.blockList()
	case token.MappingStartType, token.SequenceStartType:
		return p.flow()
	case token.LiteralType, token.FoldedType:
		return p.blockText()
	case token.SequenceEndType, token.MappingEndType, token.CollectEntryType:
		p.fail(t, "there is a %s too many, or the value needs quotes", t.Value)
	case token.MappingValueType:
		p.fail(t, "there is no key before the colon; text that begins with a colon needs quotes")
	}
	if p.failed {
		return &Node{Line: 1, Column: 1}
	}
	if p.peek(1).Type != token.MappingValueType {
		return p.scalar()
	}
	switch colon := p.peek(1); {
	case colon.Position.Line != t.Position.Line:
		p.fail(colon, tooDeep)
	case t.Position.Line == key:
		p.fail(colon, "there is a second colon on the line: put the whole value in quotes, or what it holds on lines of "+
			"its own")
	}
	return p.blockMapping()
}

// node counts, so that a document stays within its bounds.
func (p *parser) node(t *token.Token, k Kind) *Node {
	p.grow(t, 1)
	return &Node{Kind: k, Line: max(t.Position.Line, 1), Column: max(t.Position.Column, 1), size: 1}
}

func (p *parser) grow(t *token.Token, by int) {
	if p.nodes += by; p.nodes > maxNodes {
		p.fail(t, "the document holds more than %d values, those that aliases repeat included", maxNodes)
	}
}

func (p *parser) scalar() *Node {
	t := p.next()
	n := p.node(t, Text)
	n.Text = t.Value
	switch t.Type {
	case token.SingleQuoteType:
		n.style = singleQuoted
	case token.DoubleQuoteType:
		n.style = doubleQuoted
	case token.NullType, token.ImplicitNullType:
		n.Kind = Nothing
	case token.BoolType:
		n.Kind = Boolean
	case token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType, token.FloatType,
		token.InfinityType, token.NanType:
		n.Kind = Number
	case token.MergeKeyType:
		p.fail(t, "merge keys are not supported: write the keys out, or give a whole value a name with &name and repeat "+
			"it with *name")
	case token.StringType:
		if strings.Contains(strings.TrimSpace(t.Origin), "\t") {
			p.fail(t, "there is a tab in this value: put it in quotes, or use spaces")
		}
	default:
		p.fail(t, "%q is not expected here", t.Value)
	}
	return n
}

// blockText reads the text below | or >.
func (p *parser) blockText() *Node {
	t := p.next()
	n := p.node(t, Text)
	n.style = block
	if content := p.peek(0); content.Type == token.StringType {
		n.Text = p.next().Value
	}
	return n
}

func (p *parser) blockList() *Node {
	first := p.peek(0)
	n := p.node(first, List)
	column := first.Position.Column
	for t := p.peek(0); t.Type == token.SequenceEntryType && t.Position.Column == column; t = p.peek(0) {
		p.next()
		n.add(nil, p.below(t, column, false))
	}
	t := p.peek(0)
	noSpace := t.Type == token.StringType && strings.HasPrefix(t.Value, "-")
	if !ends(t) && (t.Position.Column > column || noSpace) {
		p.stray(t)
	}
	return n
}

func (p *parser) blockMapping() *Node {
	first := p.peek(0)
	n := p.node(first, Mapping)
	column := first.Position.Column
	for p.peek(0).Position.Column == column && p.peek(1).Type == token.MappingValueType {
		t := p.peek(0)
		key := p.key(n)
		if colon := p.next(); colon.Position.Line != t.Position.Line {
			p.fail(colon, tooDeep)
		}
		n.add(key, p.below(t, column, true))
	}
	if t := p.peek(0); !ends(t) && t.Position.Column >= column {
		p.stray(t)
	}
	return n
}

// below reads the value that belongs to a key or a dash.
func (p *parser) below(t *token.Token, column int, ofKey bool) *Node {
	// A value stands on the same line, or deeper; the dashes of a key's list may also stand right below it.
	belongs := func(next *token.Token) bool {
		return !ends(next) && (next.Position.Line == t.Position.Line || next.Position.Column > column ||
			ofKey && next.Type == token.SequenceEntryType && next.Position.Column == column)
	}
	next := p.peek(0)
	if !belongs(next) {
		return p.node(t, Nothing)
	}
	if next.Type == token.AnchorType && !belongs(p.peek(2)) {
		p.fail(next, "the anchor has no value")
	}
	if ofKey {
		return p.value(t.Position.Line)
	}
	return p.value(0)
}

// key reads a key, and notes if the mapping has it already.
func (p *parser) key(of *Node) *Node {
	t := p.peek(0)
	n := p.scalar()
	if other, twice := of.Get(n.Text); twice && len(p.problems) < maxFound {
		problem := fmt.Sprintf("key %q is here twice, first in line %d: keep one of them", n.Text, other.Key.Line)
		p.problems = append(p.problems, &Error{File: p.name, Line: n.Line, Column: n.Column, Problem: problem})
	}
	if t.Type == token.NullType || t.Type == token.BoolType {
		n.Kind = Text
	}
	return n
}
