package yamldoc

import (
	"strings"

	"github.com/goccy/go-yaml/token"
)

// stray reports a token that does not belong to any value above it.
func (p *parser) stray(t *token.Token) {
	before := p.peek(-1)
	quoted := before.Type == token.DoubleQuoteType || before.Type == token.SingleQuoteType
	switch {
	case p.at > 0 && quoted && before.Position.Line == t.Position.Line:
		p.fail(t, "text after a quoted value: quote all of it with the other kind of quotes, or write it in a "+
			"block below |")
	case t.Type == token.StringType && strings.HasPrefix(t.Value, "-"):
		p.fail(t, "no space after the dash: add one")
	case t.Type == token.SequenceEndType, t.Type == token.MappingEndType, t.Value == "}", t.Value == "]":
		p.fail(t, "unexpected %s: remove it", t.Value)
	case t.Type == token.SequenceEntryType:
		p.fail(t, "the indentation of this list matches no line above: align its dashes")
	case p.peek(1).Type == token.MappingValueType:
		p.fail(t, "the indentation of this key matches no line above: align it with its sibling keys")
	case t.Type == token.AliasType && p.peek(2).Type == token.MappingValueType:
		p.fail(t, "an alias cannot be a key")
	default:
		p.fail(t, "no colon after %q: write key: value", Shorten(t.Value))
	}
}

// explainToken returns the problem of a token that the tokenizer could not read.
func explainToken(t *token.Token) string {
	switch {
	case strings.Contains(t.Error, "tab"), strings.Contains(t.Error, "'\t'"):
		return "tab in the indentation: indent YAML with spaces"
	case strings.Contains(t.Error, "end character"):
		return "unclosed quote: add the closing quote"
	case strings.Contains(t.Error, "escape"):
		return "unknown escape within double quotes: write \\\\ for a backslash, or use single quotes"
	case strings.Contains(t.Error, "reserved"):
		return "a value cannot begin with this character: quote the value"
	}
	return "invalid YAML: " + t.Error
}
