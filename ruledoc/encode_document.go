package ruledoc

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// YAML encodes the document for people: in the short forms of the documentation, with a blank line between rules. It returns
// an error for rules that EncodeRule cannot encode, and for overrides and exemptions of rules that are not in the document.
func (d *Document) YAML() ([]byte, error) {
	e := encoder{overrideDefaults: map[string]func(string) limitDefaults{}}
	n := documentKeys.write(&e, "", &rootMapping{document: d, mode: d.Mode})
	if e.problem != nil {
		return nil, e.problem
	}
	var parts [][]byte
	for _, one := range n.Entries {
		switch key, value := one.Key.Text, one.Value; {
		case value.Kind != yamldoc.List:
			parts = append(parts, appendBlock(nil, &node{Kind: yamldoc.Mapping, Entries: []entry{one}}, 0))
		case len(value.Items) > 0 || key == "rules":
			parts = append(parts, section(key, value.Items, key == "rules"))
		}
	}
	return bytes.Join(parts, []byte("\n")), nil
}

// listOf encodes a slice as a list.
func listOf[T any](e *encoder, all []T, write func(*encoder, T) *node) *node {
	n := &node{Kind: yamldoc.List}
	for _, one := range all {
		n.Items = append(n.Items, write(e, one))
	}
	return n
}

// section encodes a list of the document. If spaced, there is a blank line between items and each key has its own line.
func section(key string, items []*node, spaced bool) []byte {
	if len(items) == 0 {
		return []byte(key + ": []\n")
	}
	out := []byte(key + ":\n")
	for i, n := range items {
		if spaced && i > 0 {
			out = append(out, '\n')
		}
		out = append(out, "  - "...)
		if flow := appendFlow(nil, n, yamlFlow); !spaced && fits(n, flow, 4) {
			out = append(append(out, flow...), '\n')
		} else {
			out = appendBlock(out, n, 4)
		}
	}
	return out
}

// documentRule encodes a rule, and records the defaults of the limits of its overrides.
func (e *encoder) documentRule(r headgate.Rule) *node {
	n, defaults, err := encodeRule(r)
	e.problem = cmp.Or(e.problem, err)
	e.overrideDefaults[r.ID] = defaults
	return n
}

func (e *encoder) override(o headgate.Override) *node {
	defaults := e.overrideDefaults[o.Rule]
	if defaults == nil {
		e.problem = cmp.Or(e.problem, fmt.Errorf("override: rule %q not found in the document", o.Rule))
		return nil
	}
	encodable := parsedOverride{Override: o, plan: parsedPlan{Plan: headgate.Plan{Limit: o.Limit, Limits: o.Limits}, defaults: defaults}}
	return writeIn(e, fmt.Sprintf("override of rule %q", o.Rule), overrideKeys, &encodable)
}

func (e *encoder) exemption(x headgate.Exemption) *node {
	if x.Rule != "" && e.overrideDefaults[x.Rule] == nil {
		e.problem = cmp.Or(e.problem, fmt.Errorf("exemption: rule %q not found in the document", x.Rule))
		return nil
	}
	return writeIn(e, "exemption by "+x.Attribute, exemptionKeys, &parsedExemption{Exemption: x})
}

// writeIn encodes an item of the document. What names it in errors.
func writeIn[T any](e *encoder, what string, keys *object[T], from *T) *node {
	var in encoder
	n := keys.write(&in, "", from)
	if in.problem != nil {
		e.problem = cmp.Or(e.problem, fmt.Errorf("%s: %w", what, in.problem))
	}
	return n
}
