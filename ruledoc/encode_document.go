package ruledoc

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// YAML writes the document for people: in short forms, as the documentation has them, with a blank line between rules. It
// fails for what EncodeRule cannot write, and for overrides and exemptions of rules that the document has not.
func (d *Document) YAML() ([]byte, error) {
	e := encoder{likes: map[string]func(string) how{}}
	n := topKeys.write(&e, "", &top{document: d, mode: d.Mode})
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

func listOf[T any](e *encoder, all []T, write func(*encoder, T) *node) *node {
	n := &node{Kind: yamldoc.List}
	for _, one := range all {
		n.Items = append(n.Items, write(e, one))
	}
	return n
}

// section writes a list of the document. Where its items stand apart, each key has a line.
func section(key string, items []*node, apart bool) []byte {
	if len(items) == 0 {
		return []byte(key + ": []\n")
	}
	out := []byte(key + ":\n")
	for i, n := range items {
		if apart && i > 0 {
			out = append(out, '\n')
		}
		out = append(out, "  - "...)
		if flow := appendFlow(nil, n, yamlFlow); !apart && fits(n, flow, 4) {
			out = append(append(out, flow...), '\n')
		} else {
			out = appendBlock(out, n, 4)
		}
	}
	return out
}

// documentRule writes a rule, and remembers how the limits of its overrides count.
func (e *encoder) documentRule(r headgate.Rule) *node {
	n, like, err := encodeRule(r)
	e.problem = cmp.Or(e.problem, err)
	e.likes[r.ID] = like
	return n
}

func (e *encoder) override(o headgate.Override) *node {
	like := e.likes[o.Rule]
	if like == nil {
		e.problem = cmp.Or(e.problem, fmt.Errorf("override of rule %q: there is no such rule in the document", o.Rule))
		return nil
	}
	read := readOverride{Override: o, plan: readPlan{Plan: headgate.Plan{Limit: o.Limit, Limits: o.Limits}, like: like}}
	return writeIn(e, fmt.Sprintf("override of rule %q", o.Rule), overrideKeys, &read)
}

func (e *encoder) exemption(x headgate.Exemption) *node {
	if x.Rule != "" && e.likes[x.Rule] == nil {
		e.problem = cmp.Or(e.problem, fmt.Errorf("exemption from rule %q: there is no such rule in the document", x.Rule))
		return nil
	}
	return writeIn(e, "exemption by "+x.Attribute, exemptionKeys, &readExemption{Exemption: x})
}

// writeIn writes an item of the document, which is what in errors.
func writeIn[T any](e *encoder, what string, keys *object[T], from *T) *node {
	var in encoder
	n := keys.write(&in, "", from)
	if in.problem != nil {
		e.problem = cmp.Or(e.problem, fmt.Errorf("%s: %w", what, in.problem))
	}
	return n
}
