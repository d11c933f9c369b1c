package ruledoc

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

var (
	undeclared  = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	noOverload  = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '([^']*)'`)
	noField     = regexp.MustCompile(`^type '([^']*)' does not support field selection`)
	unexpected  = regexp.MustCompile(`^Syntax error: (?:\w+ input|no viable .* input|missing .* at) '([^']*)'`)
	unreadable  = regexp.MustCompile(`^Syntax error: token recognition error at: '(.*)'$`)
	typeNames   = regexp.MustCompile(`(?:list|map)\([^)]*\)|\w+`)
	wrongType   = regexp.MustCompile(`^expected type '([^']*)' but found '([^']*)'`)
	operatorFor = regexp.MustCompile(`^@?_?(.+?)_?$`)
)

// explainIssues converts CEL's errors to problems in the vocabulary of rules. One mistake often causes several syntax errors;
// only the first one is reported.
func explainIssues(s string, issues []*common.Error) []conditionProblem {
	var all []conditionProblem
	for _, issue := range issues {
		offset := offsetOf(s, issue.Location)
		called := offset < len([]rune(s)) && []rune(s)[offset] == '('
		p := conditionProblem{offset, explainIssue(issue.Message, called)}
		if strings.HasPrefix(issue.Message, "Syntax error") {
			return []conditionProblem{p}
		}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// explainIssue converts one error of CEL. Called is true if it is about a function.
func explainIssue(message string, called bool) string {
	if m := undeclared.FindStringSubmatch(message); m != nil {
		return explainName(m[1], called)
	}
	if m := noOverload.FindStringSubmatch(message); m != nil {
		return explainOverload(m[1], m[2])
	}
	if m := noField.FindStringSubmatch(message); m != nil {
		return "only header, cookie, claim and descriptor support names after a dot; this is " + typeWord(m[1])
	}
	if m := wrongType.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("list elements must have the same type: this is %s, the list holds %s", typeWord(m[2]), typeWord(m[1]))
	}
	if m := unexpected.FindStringSubmatch(message); m != nil {
		switch m[1] {
		case "<EOF>":
			return "unexpected end of the condition: complete it"
		case "and", "or", "not":
			return fmt.Sprintf("unexpected %q: write %s", m[1], map[string]string{"and": "&&", "or": "||", "not": "!"}[m[1]])
		}
		return fmt.Sprintf("unexpected %q", m[1])
	}
	if m := unreadable.FindStringSubmatch(message); m != nil {
		switch first := m[1][:min(1, len(m[1]))]; first {
		case "=":
			return "unexpected =: write == to compare"
		case "&", "|":
			return fmt.Sprintf("unexpected %s: write %s%s", first, first, first)
		case "\"", "'":
			return "unclosed quote: add the closing quote"
		}
		return fmt.Sprintf("unexpected %q", yamldoc.Shorten(m[1]))
	}
	switch {
	case strings.Contains(message, "expression code point size exceeds limit"):
		return fmt.Sprintf("the condition is longer than %d characters: use match, or split the rule",
			maxConditionRunes)
	case strings.Contains(message, "recursion limit"):
		return fmt.Sprintf("the condition is nested more than %d levels deep: simplify it", maxConditionDepth)
	}
	return strings.TrimPrefix(message, "Syntax error: ")
}

var conditionFunctions = []string{
	"startsWith", "endsWith", "contains", "matches", "size", "number", "lowerAscii", "all", "exists",
}

// explainName explains an unknown attribute or, if called, an unknown function.
func explainName(name string, called bool) string {
	operator := operatorFor.ReplaceAllString(name, "$1")
	known, kind := slices.Concat(headgate.BuiltIn(), attributeMaps), "attribute"
	if called {
		known, kind = conditionFunctions, "function"
	}
	near := yamldoc.Nearest(name, known)
	switch {
	case near != "":
		return fmt.Sprintf("unknown %s %q; did you mean %s?", kind, name, near)
	case slices.Contains([]string{"-", "*", "/", "%"}, operator):
		return operator + " is not available: arithmetic could fail at request time"
	case name == "has":
		return "has is not available: an absent attribute is the empty string: compare it with \"\""
	case name == "int" || name == "uint" || name == "double":
		return name + " is not available, because it could fail at request time: use number(…), which returns 0 for text that is " +
			"not a whole number"
	case called:
		return fmt.Sprintf("unknown function %q; available functions: %s", name, strings.Join(known, ", "))
	}
	return fmt.Sprintf("unknown attribute %q; available attributes: %s, header[\"x\"], cookie[\"x\"], claim[\"x\"] and "+
		"descriptor[\"x\"]; text needs quotes", name, strings.Join(headgate.BuiltIn(), ", "))
}

// explainOverload explains operands of unsupported types.
func explainOverload(name, applied string) string {
	words := typeNames.FindAllString(applied, -1)
	for i, t := range words {
		words[i] = typeWord(t)
	}
	operator := operatorFor.ReplaceAllString(name, "$1")
	switch on := strings.Join(words, " and "); operator {
	case "==", "!=", "<", "<=", ">", ">=":
		if slices.Contains(words, "text") && slices.Contains(words, "a number") {
			return operator + " does not support " + on + ": quote the number, or convert the text with number(…)"
		}
		return operator + " does not support " + on
	case "in":
		return "in requires a list: in [\"a\", \"b\"]"
	case "+":
		return "+ only concatenates texts: arithmetic could fail at request time"
	case "[_]":
		return "only header, cookie, claim and descriptor support brackets: header[\"x-app\"]"
	case "&&", "||", "!", "?_:":
		return operator + " requires true or false, not " + on
	default:
		return operator + " does not support " + strings.Join(words, ", ")
	}
}

// typeWord returns the name of a CEL type in errors.
func typeWord(t string) string {
	switch {
	case t == "string":
		return "text"
	case t == "int" || t == "uint" || t == "double":
		return "a number"
	case t == "bool":
		return "true or false"
	case strings.HasPrefix(t, "list"):
		return "a list"
	case strings.HasPrefix(t, "map"):
		return "a map: select one name, like header[\"x-app\"]"
	}
	return t
}

// offsetOf returns the character offset of a CEL location.
func offsetOf(s string, at common.Location) int {
	offset := 0
	for range at.Line() - 1 {
		line, rest, found := strings.Cut(s, "\n")
		if !found {
			break
		}
		offset += len([]rune(line)) + 1
		s = rest
	}
	return offset + max(at.Column(), 0)
}
