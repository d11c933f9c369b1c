package config

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/yamldoc"
)

// variable matches $${, which stands for ${, a variable ${NAME}, or a ${ that is not closed.
var variable = regexp.MustCompile(`\$\$\{|\$\{([^}]*)(\}?)`)

var validName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces the variables in the texts of a tree by their values, in each text once: an alias is the same node as its
// anchor.
func (d *decoder) expand(n *yamldoc.Node) {
	if _, done := d.expanded[n]; done {
		return
	}
	d.expanded[n] = false
	for _, item := range n.Items {
		d.expand(item)
	}
	for _, e := range n.Entries {
		d.expand(e.Value)
	}
	if n.Kind == yamldoc.Text && strings.Contains(n.Text, "${") {
		d.expanded[n] = true
		n.Text = d.substitute(n)
	}
}

func (d *decoder) substitute(n *yamldoc.Node) string {
	var b strings.Builder
	last := 0
	for _, m := range variable.FindAllStringSubmatchIndex(n.Text, -1) {
		b.WriteString(n.Text[last:m[0]])
		last = m[1]
		if m[2] < 0 {
			b.WriteString("${")
			continue
		}
		name, closed := n.Text[m[2]:m[3]], m[4] < m[5]
		value, set := "", false
		if closed && validName.MatchString(name) {
			value, set = d.lookup(name)
		}
		b.WriteString(value)
		if set {
			continue
		}
		line, column := d.Source.Locate(n, utf8.RuneCountInString(n.Text[:m[0]]))
		d.BadAt(line, column, variableProblem(name, closed))
		d.unset[n] = true
	}
	b.WriteString(n.Text[last:])
	return b.String()
}

func variableProblem(name string, closed bool) string {
	switch {
	case !closed:
		return "${ without }: write ${NAME}, or $${ for a literal ${"
	case !validName.MatchString(name):
		return "${" + yamldoc.Shorten(name) + "} is not a variable: write ${NAME} with letters, digits and underscores, or $${ " +
			"for a literal ${"
	}
	return "variable " + yamldoc.Shorten(name) + " not set: set it in the environment, or write the value here"
}

// as converts a text that came from a variable to the kind that its key needs, if possible.
func (d *decoder) as(n *yamldoc.Node, kind yamldoc.Kind) *yamldoc.Node {
	if !d.expanded[n] || n.Kind != yamldoc.Text {
		return n
	}
	_, isInt := strconv.ParseInt(n.Text, 10, 64)
	isBool := n.Text == "true" || n.Text == "false"
	if kind == yamldoc.Number && isInt != nil || kind == yamldoc.Boolean && !isBool {
		return n
	}
	other := *n
	other.Kind = kind
	return &other
}
