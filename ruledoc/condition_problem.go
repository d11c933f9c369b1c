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

// explainIssues turns what CEL says into what a reader of rules can use. One mistake makes CEL stumble several times:
// only the first of its syntax errors is told.
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

// explainIssue explains one of them; called is true if it is about a function.
func explainIssue(message string, called bool) string {
	if m := undeclared.FindStringSubmatch(message); m != nil {
		return explainName(m[1], called)
	}
	if m := noOverload.FindStringSubmatch(message); m != nil {
		return explainOverload(m[1], m[2])
	}
	if m := noField.FindStringSubmatch(message); m != nil {
		return "only header, cookie, claim and descriptor have names after a dot; this is " + typeWord(m[1])
	}
	if m := wrongType.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("this is %s, and the list holds %s: a list is of one kind", typeWord(m[2]), typeWord(m[1]))
	}
	if m := unexpected.FindStringSubmatch(message); m != nil {
		switch m[1] {
		case "<EOF>":
			return "the condition ends too early"
		case "and", "or", "not":
			return fmt.Sprintf("unexpected %q: write %s", m[1], map[string]string{"and": "&&", "or": "||", "not": "!"}[m[1]])
		}
		return fmt.Sprintf("unexpected %q", m[1])
	}
	if m := unreadable.FindStringSubmatch(message); m != nil {
		switch first := m[1][:min(1, len(m[1]))]; first {
		case "=":
			return "one = is not enough: write == to compare"
		case "&", "|":
			return fmt.Sprintf("write %s%s, not one alone", first, first)
		case "\"", "'":
			return "the quote that begins here is never closed"
		}
		return fmt.Sprintf("%q is not understood here", yamldoc.Shorten(m[1]))
	}
	switch {
	case strings.Contains(message, "expression code point size exceeds limit"):
		return fmt.Sprintf("the condition is longer than %d characters: use match, or make several rules of it",
			maxConditionRunes)
	case strings.Contains(message, "recursion limit"):
		return fmt.Sprintf("the condition is nested more than %d deep", maxConditionDepth)
	}
	return strings.TrimPrefix(message, "Syntax error: ")
}

var conditionFunctions = []string{
	"startsWith", "endsWith", "contains", "matches", "size", "number", "lowerAscii", "all", "exists",
}

func explainName(name string, called bool) string {
	operator := operatorFor.ReplaceAllString(name, "$1")
	known, what := slices.Concat(headgate.BuiltIn(), conditionMaps), "attribute"
	if called {
		known, what = conditionFunctions, "function"
	}
	near := yamldoc.Nearest(name, known)
	switch {
	case near != "":
		return fmt.Sprintf("there is no %s %q; did you mean %s?", what, name, near)
	case slices.Contains([]string{"-", "*", "/", "%"}, operator):
		return operator + " is not available: arithmetic can fail while requests are decided"
	case name == "has":
		return "has is not available: an absent attribute is empty, so compare it with \"\""
	case name == "int" || name == "uint" || name == "double":
		return name + " can fail while requests are decided: write number(…), which is 0 for what is no whole number"
	case called:
		return fmt.Sprintf("there is no function %q; there are %s", name, strings.Join(known, ", "))
	}
	return fmt.Sprintf("there is no attribute %q; there are %s, and header[\"x\"], cookie[\"x\"], claim[\"x\"] and "+
		"descriptor[\"x\"]; text is written in quotes", name, strings.Join(headgate.BuiltIn(), ", "))
}

func explainOverload(name, applied string) string {
	words := typeNames.FindAllString(applied, -1)
	for i, t := range words {
		words[i] = typeWord(t)
	}
	operator := operatorFor.ReplaceAllString(name, "$1")
	switch on := strings.Join(words, " and "); operator {
	case "==", "!=", "<", "<=", ">", ">=":
		if slices.Contains(words, "text") && slices.Contains(words, "a number") {
			return operator + " does not work on " + on + ": put the number in quotes, or write number(…) around the text"
		}
		return operator + " does not work on " + on
	case "in":
		return "in wants a list after it: in [\"a\", \"b\"]"
	case "+":
		return "+ joins texts and nothing else: arithmetic can fail while requests are decided"
	case "[_]":
		return "only header, cookie, claim and descriptor have brackets after them: header[\"x-app\"]"
	case "&&", "||", "!", "?_:":
		return operator + " wants true or false, not " + on
	default:
		return operator + " does not work on " + strings.Join(words, ", ")
	}
}

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
		return "a map, of which one name is to be picked: header[\"x-app\"]"
	}
	return t
}

// offsetOf is the character that a place in a text stands for.
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
