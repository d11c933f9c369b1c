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

// EncodeRule writes a rule as the JSON document that ParseRule reads. The same rule is always the same bytes: keys are in
// the order of the documentation, those that would say nothing are left out, and limits are in their shortest form. It
// fails for what no document can say: a rule that does not compile, a condition made in Go, a window finer than a
// millisecond.
func EncodeRule(r headgate.Rule) ([]byte, error) {
	n, _, err := encodeRule(r)
	if err != nil {
		return nil, err
	}
	return encodeJSON(n), nil
}

// encodeRule makes the tree of a rule, and says how the limits of its overrides count when they are read.
func encodeRule(r headgate.Rule) (n *node, like func(limit string) how, err error) {
	if _, err := headgate.Compile(r); err != nil {
		return nil, nil, err
	}
	var e encoder
	read := written(r)
	n = ruleKeys.write(&e, "", read)
	if e.problem != nil {
		return nil, nil, fmt.Errorf("rule %q: %w", r.ID, e.problem)
	}
	return n, read.likeOverride, nil
}

// written returns a rule made ready to be written.
func written(r headgate.Rule) *readRule {
	algorithm := commonAlgorithm(r)
	own := readPlan{Plan: headgate.Plan{Limit: r.Limit, Limits: r.Limits}, like: func(string) how { return how{algorithm: algorithm} }}
	return &readRule{Rule: r, algorithm: &algorithm, own: own}
}

// Settings yields the keys of a rule that do not go without saying, in the order of the documentation, each with its value: a text as it
// is, all else in JSON. It passes over those in except, and over what cannot be written; EncodeRule says what that is.
func Settings(r headgate.Rule, except ...string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		var e encoder
		from := written(r)
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

// commonAlgorithm is how the first of a rule's limits counts that can count in several ways; the others say it where they
// differ.
func commonAlgorithm(r headgate.Rule) headgate.Algorithm {
	limits := []headgate.Limit{r.Limit}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		limits = append(limits, r.Limits[name])
	}
	for _, l := range limits {
		if like, ok := howOf(l); ok {
			return like.algorithm
		}
	}
	return headgate.TokenBucket
}

// encoder makes the trees of values, and keeps the first thing that cannot be written.
type encoder struct {
	problem error
	likes   map[string]func(limit string) how // how overrides of the document's rules count
}

func (e *encoder) bad(what, format string, args ...any) {
	e.problem = cmp.Or(e.problem, fmt.Errorf("%s: "+format, append([]any{what}, args...)...))
}

func mapping() *node { return &node{Kind: yamldoc.Mapping} }

// put adds an entry, unless there is no value.
func put(n *node, key string, value *node) {
	if value != nil {
		n.Entries = append(n.Entries, entry{Key: &node{Kind: yamldoc.Text, Text: key}, Value: value})
	}
}

func yesOrNo(v bool) *node { return &node{Kind: yamldoc.Boolean, Text: strconv.FormatBool(v)} }

// number and wordNode are nil for what is the default.
func number(v int64) *node {
	if v == 0 {
		return nil
	}
	return &node{Kind: yamldoc.Number, Text: strconv.FormatInt(v, 10)}
}

func wordNode[T interface {
	~uint8
	String() string
}](v T) *node {
	if v == 0 {
		return nil
	}
	return &node{Kind: yamldoc.Text, Text: v.String()}
}

// text is nil for an empty one.
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

// texts is a mapping of texts, which may be empty, or nil for none.
func (e *encoder) texts(what string, texts map[string]string) *node {
	if len(texts) == 0 {
		return nil
	}
	n := mapping()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		e.text(what, name)
		put(n, name, e.anyText(what, texts[name]))
	}
	return n
}

func (e *encoder) rate(where string, l headgate.Limit) *node {
	window := windowText(l.Window)
	if window == "" {
		e.bad(where, "a window of %s cannot be written: make it whole milliseconds", l.Window)
	}
	return e.text(where, strconv.FormatInt(l.Count, 10)+"/"+window)
}
