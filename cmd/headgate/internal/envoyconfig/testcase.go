package envoyconfig

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// testCase is a test of one descriptor.
type testCase struct {
	name     string
	rule     *rule  // nil if none applies
	request  string // that gets to the descriptor
	other    string // the same with another value, if there may be one
	together bool   // they share a counter
}

// test adds a test of the descriptor at the end of the way, if there are values for it.
func (im *importer) test(w way, r *rule) {
	c := testCase{rule: r}
	values := make([]string, len(w.steps))
	last := -1 // that may have another value
	for i := range w.steps {
		value, ok := w.steps[i].sample(0)
		if !ok {
			return
		}
		if values[i] = value; !w.steps[i].fixed() {
			last = i
		}
	}
	c.request = w.request(values)
	if last >= 0 {
		if value, ok := w.steps[last].sample(1); ok {
			values[last] = value
			c.other, c.together = w.request(values), !w.steps[last].counted()
		}
	}
	c.name = w.String() + " has no limit"
	if r != nil {
		c.name = fmt.Sprintf("%s has %d/%s", r.id, r.requests, r.unit)
	}
	c.name = unique(im.names, c.name)
	im.file.cases = append(im.file.cases, c)
}

// request is one that comes this way with these values.
func (w way) request(values []string) string {
	parts := []string{"domain: " + quoted(w.domain), "entries: " + quoted(w.entries())}
	for i := range w.steps {
		parts = append(parts, quoted("descriptor."+w.steps[i].attribute)+": "+quoted(values[i]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Tests are tests of the file's rules, which stand in rulesFile, in YAML. They are empty if there is nothing to test.
func (f *File) Tests(rulesFile string) string {
	if len(f.cases) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# What %s means to envoyproxy/ratelimit.\n", filepath.Base(f.name))
	fmt.Fprintf(&b, "rules: [%s]\n\ntests:\n", quoted(filepath.Base(rulesFile)))
	for i := range f.cases {
		if i > 0 {
			b.WriteByte('\n')
		}
		f.cases[i].write(&b)
	}
	return b.String()
}

// start is when tests begin.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func (c *testCase) write(b *strings.Builder) {
	fmt.Fprintf(b, "  - name: %s\n    requests:\n", quoted(c.name))
	step := func(request, before, expect string) {
		fmt.Fprintf(b, "      - request: %s\n%s        expect: {%s}\n", request, before, expect)
	}
	r := c.rule
	if r == nil {
		step(c.request, "", "allowed: true, rules: []")
		return
	}
	id := quoted(r.id)
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
	case c.together:
		step(c.other, "", over)
	default:
		step(c.other, "", fits)
	}
	step(c.request, fmt.Sprintf("        at: %ds\n", rest), fits)
}
