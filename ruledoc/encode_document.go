package ruledoc

import (
	"bytes"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// YAML writes the document for people: in short forms, as the documentation has them, with a blank line between rules. It
// fails for what EncodeRule cannot write, and for overrides and exemptions of rules that the document has not.
func (d *Document) YAML() ([]byte, error) {
	var rules, overrides, exemptions []*node
	likes := map[string]func(string) how{}
	for _, r := range d.Source {
		n, like, err := encodeRule(r)
		if err != nil {
			return nil, err
		}
		likes[r.ID] = like
		rules = append(rules, n)
	}
	for _, o := range d.Overrides {
		n, err := encodeOverride(o, likes[o.Rule])
		if err != nil {
			return nil, err
		}
		overrides = append(overrides, n)
	}
	for _, x := range d.Exemptions {
		if x.Rule != "" && likes[x.Rule] == nil {
			return nil, fmt.Errorf("exemption from rule %q: there is no such rule in the document", x.Rule)
		}
		n, err := encodeExemption(x)
		if err != nil {
			return nil, err
		}
		exemptions = append(exemptions, n)
	}
	var parts [][]byte
	if d.Mode != headgate.Enforce {
		parts = append(parts, append(appendText([]byte("mode: "), d.Mode.String(), false), '\n'))
	}
	parts = append(parts, section("rules", rules, true))
	if len(overrides) > 0 {
		parts = append(parts, section("overrides", overrides, false))
	}
	if len(exemptions) > 0 {
		parts = append(parts, section("exemptions", exemptions, false))
	}
	return bytes.Join(parts, []byte("\n")), nil
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

func encodeOverride(o headgate.Override, like func(limit string) how) (*node, error) {
	if like == nil {
		return nil, fmt.Errorf("override of rule %q: there is no such rule in the document", o.Rule)
	}
	var e encoder
	n := mapping()
	put(n, "rule", e.text("rule", o.Rule))
	put(n, "subject", e.texts("subject", o.Subject))
	e.limits(n, "", headgate.Plan{Limit: o.Limit, Limits: o.Limits}, like)
	put(n, "expires", instant(o.Expires))
	put(n, "reason", e.text("reason", o.Reason))
	if e.problem != nil {
		return nil, fmt.Errorf("override of rule %q: %w", o.Rule, e.problem)
	}
	return n, nil
}

func encodeExemption(x headgate.Exemption) (*node, error) {
	var e encoder
	n := mapping()
	put(n, "rule", e.text("rule", x.Rule))
	by := x.Attribute
	if by == "ip" {
		by = "ip_cidr"
	}
	put(n, by, e.text(by, x.Value))
	put(n, "expires", instant(x.Expires))
	put(n, "reason", e.text("reason", x.Reason))
	if e.problem != nil {
		return nil, fmt.Errorf("exemption by %s: %w", by, e.problem)
	}
	return n, nil
}

// instant is a time, which is written as it is, like a number; nil for none.
func instant(t time.Time) *node {
	if t.IsZero() {
		return nil
	}
	return &node{Kind: yamldoc.Number, Text: t.UTC().Format(time.RFC3339Nano)}
}
