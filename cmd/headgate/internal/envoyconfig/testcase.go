package envoyconfig

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// testCase is a test of one descriptor.
type testCase struct {
	name    string
	rule    *rule  // nil if no rule applies
	request string // a request that reaches the descriptor
	other   string // the same with another value; "" if there is none
	shared  bool   // request and other share a counter
}

// test adds a test of the descriptor at the end of the path, unless no value reaches it.
func (im *importer) test(path descriptorPath, r *rule) {
	c := testCase{rule: r}
	values := make([]string, len(path.steps))
	last := -1 // the last step that matches several values
	for i := range path.steps {
		value, ok := path.steps[i].sample(0)
		if !ok {
			return
		}
		if values[i] = value; !path.steps[i].fixed() {
			last = i
		}
	}
	c.request = path.request(values)
	if last >= 0 {
		if value, ok := path.steps[last].sample(1); ok {
			values[last] = value
			c.other, c.shared = path.request(values), !path.steps[last].counted()
		}
	}
	c.name = path.String() + " has no limit"
	if r != nil {
		c.name = fmt.Sprintf("%s has %d/%s", r.id, r.requests, r.unit)
	}
	c.name = unique(im.names, c.name)
	im.file.cases = append(im.file.cases, c)
}

// request returns a request with these values along the path.
func (p descriptorPath) request(values []string) string {
	parts := []string{"domain: " + quoteYAML(p.domain), "entries: " + quoteYAML(p.entries())}
	for i := range p.steps {
		parts = append(parts, quoteYAML("descriptor."+p.steps[i].attribute)+": "+quoteYAML(values[i]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Tests returns tests of the file's rules, which are in rulesFile, as YAML. It returns "" if there is nothing to test.
func (f *File) Tests(rulesFile string) string {
	if len(f.cases) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# The behaviour of %s in envoyproxy/ratelimit.\n", filepath.Base(f.name))
	fmt.Fprintf(&b, "rules: [%s]\n\ntests:\n", quoteYAML(filepath.Base(rulesFile)))
	for i := range f.cases {
		if i > 0 {
			b.WriteByte('\n')
		}
		f.cases[i].write(&b)
	}
	return b.String()
}

// start is the time at which tests begin.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func (c *testCase) write(b *strings.Builder) {
	fmt.Fprintf(b, "  - name: %s\n    requests:\n", quoteYAML(c.name))
	step := func(request, before, expect string) {
		fmt.Fprintf(b, "      - request: %s\n%s        expect: {%s}\n", request, before, expect)
	}
	r := c.rule
	if r == nil {
		step(c.request, "", "allowed: true, rules: []")
		return
	}
	id := quoteYAML(r.id)
	rest := int64((r.window() - time.Duration(start.UnixNano())%r.window()) / time.Second)
	fits, over := "allowed: true", fmt.Sprintf("allowed: false, rule: %s, retry_after: %ds", id, rest)
	switch {
	case r.shadow:
		fits, over = "allowed: true, shadow: []", "allowed: true, shadow: ["+id+"]"
	case r.requests == 0:
		over = fmt.Sprintf("allowed: false, rule: %s, retry_after: never", id)
	}
	if r.requests == 0 {
		step(c.request, "", over)
		return
	}
	step(c.request, fmt.Sprintf("        cost: %d\n", r.requests),
		fmt.Sprintf("%s, rules: [%s], rule: %[2]s, remaining: 0", fits, id))
	step(c.request, "", over)
	switch {
	case c.other == "":
	case c.shared:
		step(c.other, "", over)
	default:
		step(c.other, "", fits)
	}
	step(c.request, fmt.Sprintf("        at: %ds\n", rest), fits)
}
