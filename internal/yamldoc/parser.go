package yamldoc

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// Bounds that keep the cost of parsing a malicious document proportional to its size.
const (
	maxDepth = 32
	maxNodes = 2_000_000 // values of a document, with aliases expanded
)

// Parse parses the YAML or JSON documents of a source that has passed Check. It uses the tokenizer of the YAML library
// but not its parser: that one takes quadratic time and one stack frame per key of a mapping, so a file of a few megabytes
// crashes it, and it does not record where every value begins. Parse stops at the first syntax error.
func Parse(s Source) (documents []*Node, problems []*Error) {
	p := &parser{name: s.Name, anchors: map[string]*Node{}}
	defer func() {
		if recover() != nil { // a bug in the tokenizer must not crash a running server
			const unreadable = "this YAML cannot be parsed: if a YAML linter finds no error, write the file as JSON"
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
	// A tokenizer error is later in the file than the parser errors, but usually their cause.
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

// peek returns the token k positions ahead, or one of UnknownType after the last token.
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
		p.fail(t, "a line that begins with %% is a YAML directive, which is not supported: remove it, or quote the text")
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

// ends reports whether a token ends the document.
func ends(t *token.Token) bool {
	switch t.Type {
	case token.UnknownType, token.DocumentHeaderType, token.DocumentEndType, token.DirectiveType:
		return true
	}
	return false
}

const tooDeep = "this line continues the value of the line above because it is indented deeper: align the key, " +
	"or quote the value"

// value parses the value that begins at the next token. Key is the line of the key that the value belongs to, or 0.
func (p *parser) value(key int) *Node {
	t := p.peek(0)
	if p.depth++; p.depth > maxDepth {
		p.fail(t, "values are nested more than %d levels deep", maxDepth)
	}
	defer func() { p.depth-- }()
	switch t.Type {
	case token.AnchorType:
		return p.anchor(key)
	case token.AliasType:
		return p.alias()
	case token.TagType:
		p.fail(t, "a value that begins with ! is a YAML tag: quote the whole value")
	case token.MappingKeyType:
		p.fail(t, "complex keys are not supported: write key: value without a question mark")
	case token.SequenceEntryType:
		if t.Position.Line == key {
			p.fail(t, "a list with dashes must begin on its own line: use [a, b] to write it on one line; text that begins "+
				"with a dash needs quotes")
		}
		return p.blockList()
	case token.MappingStartType, token.SequenceStartType:
		return p.flow()
	case token.LiteralType, token.FoldedType:
		return p.blockText()
	case token.SequenceEndType, token.MappingEndType, token.CollectEntryType:
		p.fail(t, "unexpected %s: remove it, or quote the value", t.Value)
	case token.MappingValueType:
		p.fail(t, "no key before the colon: text that begins with a colon needs quotes")
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
		p.fail(colon, "second colon on this line: quote the whole value, or write the nested keys on their own lines")
	}
	return p.blockMapping()
}

// node creates a node at a token and counts it against maxNodes.
func (p *parser) node(t *token.Token, k Kind) *Node {
	p.grow(t, 1)
	return &Node{Kind: k, Line: max(t.Position.Line, 1), Column: max(t.Position.Column, 1), size: 1}
}

func (p *parser) grow(t *token.Token, by int) {
	if p.nodes += by; p.nodes > maxNodes {
		p.fail(t, "the document has more than %d values, with aliases expanded", maxNodes)
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
		n.Kind = Null
	case token.BoolType:
		n.Kind = Boolean
	case token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType, token.FloatType,
		token.InfinityType, token.NanType:
		n.Kind = Number
	case token.MergeKeyType:
		p.fail(t, "merge keys are not supported: write the keys out, or define a whole value with &name and repeat "+
			"it with *name")
	case token.StringType:
		if strings.Contains(strings.TrimSpace(t.Origin), "\t") {
			p.fail(t, "tab in an unquoted value: quote the value, or use spaces")
		}
	default:
		p.fail(t, "unexpected %q", t.Value)
	}
	return n
}

// blockText parses the text below | or >.
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

// below parses the value of a key or of a list item.
func (p *parser) below(t *token.Token, column int, ofKey bool) *Node {
	// A value is on the same line or indented deeper; the dashes of a key's list may also be at the key's own column.
	belongs := func(next *token.Token) bool {
		return !ends(next) && (next.Position.Line == t.Position.Line || next.Position.Column > column ||
			ofKey && next.Type == token.SequenceEntryType && next.Position.Column == column)
	}
	next := p.peek(0)
	if !belongs(next) {
		return p.node(t, Null)
	}
	if next.Type == token.AnchorType && !belongs(p.peek(2)) {
		p.fail(next, "the anchor has no value")
	}
	if ofKey {
		return p.value(t.Position.Line)
	}
	return p.value(0)
}

// key parses a key and adds an error if the mapping already has it.
func (p *parser) key(of *Node) *Node {
	t := p.peek(0)
	n := p.scalar()
	if other, twice := of.Get(n.Text); twice && len(p.problems) < maxFound {
		problem := fmt.Sprintf("duplicate key %q, first on line %d: remove one of them", n.Text, other.Key.Line)
		p.problems = append(p.problems, &Error{File: p.name, Line: n.Line, Column: n.Column, Problem: problem})
	}
	if t.Type == token.NullType || t.Type == token.BoolType {
		n.Kind = Text
	}
	return n
}
