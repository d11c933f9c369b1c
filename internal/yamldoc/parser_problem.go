package yamldoc

import (
	"strings"

	"github.com/goccy/go-yaml/token"
)

// stray says what is wrong with a token that belongs to nothing above it.
func (p *parser) stray(t *token.Token) {
	before := p.peek(-1)
	quoted := before.Type == token.DoubleQuoteType || before.Type == token.SingleQuoteType
	switch {
	case p.at > 0 && quoted && before.Position.Line == t.Position.Line:
		p.fail(t, "there is text after a quoted value: put quotes of the other kind around all of it, or write it in a "+
			"block below |")
	case t.Type == token.StringType && strings.HasPrefix(t.Value, "-"):
		p.fail(t, "write a space after the dash")
	case t.Type == token.SequenceEndType, t.Type == token.MappingEndType, t.Value == "}", t.Value == "]":
		p.fail(t, "there is a %s too many", t.Value)
	case t.Type == token.SequenceEntryType:
		p.fail(t, "this list is indented like nothing above it: line its dashes up")
	case p.peek(1).Type == token.MappingValueType:
		p.fail(t, "this key is indented like nothing above it: line it up with the keys it belongs to")
	case t.Type == token.AliasType && p.peek(2).Type == token.MappingValueType:
		p.fail(t, "an alias cannot be a key")
	default:
		p.fail(t, "%q is not followed by a colon: write key: value", Shorten(t.Value))
	}
}

// explainToken says what the tokenizer could not read.
func explainToken(t *token.Token) string {
	switch {
	case strings.Contains(t.Error, "tab"), strings.Contains(t.Error, "'\t'"):
		return "there is a tab here: YAML is indented with spaces only"
	case strings.Contains(t.Error, "end character"):
		return "the quote that begins here is never closed"
	case strings.Contains(t.Error, "escape"):
		return "there is no such escape within double quotes: write \\\\ for a backslash, or use single quotes"
	case strings.Contains(t.Error, "reserved"):
		return "a value cannot begin with this character: put it in quotes"
	}
	return "this cannot be read as YAML: " + t.Error
}
