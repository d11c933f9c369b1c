package ruledoc

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/yamldoc"
)

// flow is the syntax of values on one line: JSON, or YAML in flow style.
type flow struct {
	comma, colon string
	text         func(out []byte, s string) []byte
}

var (
	jsonFlow = flow{",", ":", appendQuoted}
	yamlFlow = flow{", ", ": ", func(out []byte, s string) []byte { return appendText(out, s, true) }}
)

func encodeJSON(n *node) []byte { return appendFlow(nil, n, jsonFlow) }

func appendFlow(out []byte, n *node, f flow) []byte {
	switch n.Kind {
	case yamldoc.Text:
		return f.text(out, n.Text)
	case yamldoc.List:
		out = append(out, '[')
		for i, item := range n.Items {
			if i > 0 {
				out = append(out, f.comma...)
			}
			out = appendFlow(out, item, f)
		}
		return append(out, ']')
	case yamldoc.Mapping:
		out = append(out, '{')
		for i, e := range n.Entries {
			if i > 0 {
				out = append(out, f.comma...)
			}
			out = append(f.text(out, e.Key.Text), f.colon...)
			out = appendFlow(out, e.Value, f)
		}
		return append(out, '}')
	}
	return append(out, n.Text...)
}

// lineWidth is the maximum length of a line with a list or mapping.
const lineWidth = 100

// fits reports whether a value that begins at a column may be on one line: it must be short and not a mapping of mappings.
func fits(n *node, flow []byte, column int) bool {
	nested := slices.ContainsFunc(n.Entries, func(e entry) bool { return e.Value.Kind == yamldoc.Mapping })
	return !nested && column+utf8.RuneCount(flow) <= lineWidth
}

// appendBlock appends a mapping with each entry on its own lines. The first entry continues the current line.
func appendBlock(out []byte, n *node, indent int) []byte {
	margin := strings.Repeat(" ", indent)
	for i, e := range n.Entries {
		if i > 0 {
			out = append(out, margin...)
		}
		key := append(appendText(nil, e.Key.Text, true), ':')
		out = append(out, key...)
		flow := appendFlow(nil, e.Value, yamlFlow)
		switch value := e.Value; {
		case value.Kind == yamldoc.Text && isLines(value.Text):
			out = appendLines(out, value.Text, margin)
		case value.Kind == yamldoc.Text:
			out = append(appendText(append(out, ' '), value.Text, false), '\n')
		case fits(value, flow, indent+utf8.RuneCount(key)+1):
			out = append(append(append(out, ' '), flow...), '\n')
		case value.Kind == yamldoc.Mapping:
			out = append(out, "\n  "+margin...)
			out = appendBlock(out, value, indent+2)
		default:
			out = append(out, '\n')
			for _, item := range value.Items {
				out = append(out, margin+"  - "...)
				out = append(appendFlow(out, item, yamlFlow), '\n')
			}
		}
	}
	return out
}

// isLines reports whether a text can be encoded as a literal block below |.
func isLines(s string) bool {
	body := strings.TrimSuffix(s, "\n")
	if !strings.Contains(s, "\n") || body == "" || strings.ContainsAny(body[:1], " \n") || strings.ContainsAny(body[len(body)-1:], " \n") {
		return false // the parser drops trailing spaces
	}
	return isPrintable(strings.ReplaceAll(body, "\n", ""))
}

// appendLines appends a text as a literal block.
func appendLines(out []byte, s, margin string) []byte {
	body, ended := strings.CutSuffix(s, "\n")
	out = append(out, " |"...)
	if !ended {
		out = append(out, '-')
	}
	out = append(out, '\n')
	for line := range strings.SplitSeq(body, "\n") {
		if line != "" {
			out = append(out, margin+"  "+line...)
		}
		out = append(out, '\n')
	}
	return out
}

// appendText appends a text in YAML, quoted only if necessary. InFlow is true within {…} or […].
func appendText(out []byte, s string, inFlow bool) []byte {
	switch {
	case isPlain(s, inFlow):
		return append(out, s...)
	case isPrintable(s) && strings.ContainsAny(s, `"\`) && !strings.Contains(s, "'"):
		return append(out, "'"+s+"'"...)
	}
	return appendQuoted(out, s)
}

// appendQuoted appends a quoted text that is valid in JSON and in YAML.
func appendQuoted(out []byte, s string) []byte {
	out = append(out, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', byte(r))
		case r == '\n':
			out = append(out, `\n`...)
		case r == '\t':
			out = append(out, `\t`...)
		case r <= 0xffff && !unicode.IsPrint(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return append(out, '"')
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// isPlain reports whether every YAML parser reads the unquoted text as a text. If in doubt, it returns false.
func isPlain(s string, inFlow bool) bool {
	switch {
	case strings.ContainsAny(s, ":#"), strings.TrimSpace(s) != s, !isPrintable(s):
		return false
	case inFlow && strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(" -_./*", r)
	}):
		return false
	case slices.Contains(yamlWords, strings.ToLower(s)):
		return false
	}
	first, _ := utf8.DecodeRuneInString(s)
	return first == '/' || first == '_' || unicode.IsLetter(first) || plainNumber.MatchString(s)
}

// yamlWords are the words that some version of YAML does not read as text.
var yamlWords = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

// plainNumber matches a rate, a concurrency limit, a network or a duration, which no version of YAML reads as a number or a date.
var plainNumber = regexp.MustCompile(`^([0-9.]+/[0-9]*[a-z]*|[0-9]+ concurrent|([0-9.]+(ms|s|m|h))+)$`)
