package ruledoc

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// EncodeRule encodes a rule as a JSON document for ParseRule. The encoding is deterministic: keys are in the order of the
// documentation, defaults are omitted, and limits are in their shortest form. It returns an error for a rule that a document
// cannot express: one that does not compile, has a condition written in Go, or has a window that is not a whole number of
// milliseconds.
func EncodeRule(r headgate.Rule) ([]byte, error) {
	n, _, err := encodeRule(r)
	if err != nil {
		return nil, err
	}
	return encodeJSON(n), nil
}

// encodeRule returns the tree of a rule, and the defaults with which the limits of its overrides will be decoded.
func encodeRule(r headgate.Rule) (n *node, defaults func(limit string) limitDefaults, err error) {
	if _, err := compileAlone(r); err != nil {
		return nil, nil, err
	}
	var e encoder
	encodable := encodableRule(r)
	n = ruleKeys.write(&e, "", encodable)
	if e.problem != nil {
		return nil, nil, fmt.Errorf("rule %q: %w", r.ID, e.problem)
	}
	return n, encodable.overrideDefaults, nil
}

// encodableRule returns a rule with the state that encoding needs.
func encodableRule(r headgate.Rule) *parsedRule {
	algorithm := commonAlgorithm(r)
	own := parsedPlan{Plan: headgate.Plan{Limit: r.Limit, Limits: r.Limits}, defaults: func(string) limitDefaults { return limitDefaults{algorithm: algorithm} }}
	return &parsedRule{Rule: r, algorithm: &algorithm, own: own}
}

// Settings yields the keys of a rule that differ from their defaults, in the order of the documentation, with their values:
// text as is, anything else in JSON. It skips the keys in except and values that cannot be encoded; EncodeRule reports those.
func Settings(r headgate.Rule, except ...string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		var e encoder
		from := encodableRule(r)
		for _, f := range ruleKeys.fields {
			if slices.Contains(except, f.key) {
				continue
			}
			value := f.write(&e, f.key, from)
			if value == nil {
				continue
			}
			text := value.Text
			if value.Kind != yamldoc.Text {
				text = string(encodeJSON(value))
			}
			if !yield(f.key, text) {
				return
			}
		}
	}
}

// commonAlgorithm returns the algorithm of the first limit of a rule that is a rate. Limits with another algorithm are
// encoded with it.
func commonAlgorithm(r headgate.Rule) headgate.Algorithm {
	limits := []headgate.Limit{r.Limit}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		limits = append(limits, r.Limits[name])
	}
	for _, l := range limits {
		if defaults, isRate := defaultsFrom(l); isRate {
			return defaults.algorithm
		}
	}
	return headgate.TokenBucket
}

// encoder creates the trees of values, and records the first value that cannot be encoded.
type encoder struct {
	problem error
	// overrideDefaults holds, by rule, the defaults of the limits of its overrides.
	overrideDefaults map[string]func(limit string) limitDefaults
}

// bad records a problem, unless there is one already.
func (e *encoder) bad(what, format string, args ...any) {
	e.problem = cmp.Or(e.problem, fmt.Errorf("%s: "+format, append([]any{what}, args...)...))
}

func mappingNode() *node { return &node{Kind: yamldoc.Mapping} }

// put adds an entry, unless the value is nil.
func put(n *node, key string, value *node) {
	if value != nil {
		n.Entries = append(n.Entries, entry{Key: &node{Kind: yamldoc.Text, Text: key}, Value: value})
	}
}

func boolNode(v bool) *node { return &node{Kind: yamldoc.Boolean, Text: strconv.FormatBool(v)} }

// intNode returns nil for 0, which is the default.
func intNode(v int64) *node {
	if v == 0 {
		return nil
	}
	return &node{Kind: yamldoc.Number, Text: strconv.FormatInt(v, 10)}
}

// enumNode returns nil for the zero value, which is the default.
func enumNode[T interface {
	~uint8
	String() string
}](v T) *node {
	if v == 0 {
		return nil
	}
	return &node{Kind: yamldoc.Text, Text: v.String()}
}

// text returns nil for an empty text.
func (e *encoder) text(what, s string) *node {
	if s == "" {
		return nil
	}
	return e.anyText(what, s)
}

func (e *encoder) anyText(what, s string) *node {
	if !utf8.ValidString(s) {
		e.bad(what, "%q is not UTF-8", s)
	}
	return &node{Kind: yamldoc.Text, Text: s}
}

func (e *encoder) list(what string, texts []string) *node {
	n := &node{Kind: yamldoc.List}
	for _, s := range texts {
		n.Items = append(n.Items, e.anyText(what, s))
	}
	return n
}

// texts returns a mapping with text values, or nil if it has no entries.
func (e *encoder) texts(what string, texts map[string]string) *node {
	if len(texts) == 0 {
		return nil
	}
	n := mappingNode()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		e.text(what, name)
		put(n, name, e.anyText(what, texts[name]))
	}
	return n
}

// rate encodes the count and the window of a limit.
func (e *encoder) rate(where string, l headgate.Limit) *node {
	window := windowText(l.Window)
	if window == "" {
		e.bad(where, "window %s: must be a whole number of milliseconds to be encoded", l.Window)
	}
	return e.text(where, strconv.FormatInt(l.Count, 10)+"/"+window)
}
