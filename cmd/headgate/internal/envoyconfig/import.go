package envoyconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// MaxBytes is the maximum size of a file.
const MaxBytes = 16 << 20

// maxCondition is the maximum length of a rule's when.
const maxCondition = 2048

// Imported is the result of an import.
type Imported struct {
	// Files are the converted sources, in their order.
	Files []File
	// NotConverted lists the settings that rules cannot express, each with an alternative.
	NotConverted yamldoc.Errors
}

// File is one converted config.
type File struct {
	name  string
	rules []rule
	cases []testCase
}

// Import converts configs into rules. Configs of the same domain are merged, as with MERGE_DOMAIN_CONFIG. If configs are invalid, so
// that envoyproxy/ratelimit itself would reject them, the error is a yamldoc.Errors.
func Import(sources ...yamldoc.Source) (*Imported, error) {
	im := importer{ids: map[string]bool{}}
	sources = slices.Clone(sources)
	configs := make([]config, len(sources))
	domains := map[string][]*descriptor{}
	var problems yamldoc.Report
	for i, s := range sources {
		checked, problem := s.Check()
		if len(s.Data) > MaxBytes {
			checked.Data = nil
			problem = &yamldoc.Error{File: s.Name, Line: 1, Column: 1, Problem: "the file is larger than 16 MB: split it"}
		}
		sources[i] = checked
		if problem != nil {
			problems.Add(i, problem)
			continue
		}
		d := &decoder{Source: checked, Number: i, Report: &problems}
		c := readConfig(d)
		checkDuplicates(d, c.descriptors, domains[c.domain])
		configs[i] = c
		domains[c.domain] = append(domains[c.domain], c.descriptors...)
	}
	if err := problems.Errors(sources); err != nil {
		return nil, err
	}
	result := &Imported{}
	for i, c := range configs {
		im.file = &File{name: sources[i].Name}
		im.source, im.names, im.metrics = i, map[string]bool{}, false
		for _, key := range c.ignored {
			im.report(key, descriptorPath{domain: c.domain}, "%s", ignoredText(key))
		}
		im.level(descriptorPath{domain: c.domain}, c.descriptors, domains[c.domain])
		result.Files = append(result.Files, *im.file)
	}
	result.NotConverted = im.notConverted.Errors(sources)
	return result, nil
}

// importer converts one file after another.
type importer struct {
	notConverted yamldoc.Report
	ids          map[string]bool
	source       int
	file         *File
	names        map[string]bool // of the file's tests

	metrics bool // metrics were reported for this file
}

// descriptorPath is the path from the root of the config to a descriptor.
type descriptorPath struct {
	domain string
	steps  []step
}

// String returns the path as text: messaging/message_type=marketing/to_number.
func (p descriptorPath) String() string {
	parts := []string{p.domain}
	for i := range p.steps {
		parts = append(parts, p.steps[i].descriptor.String())
	}
	return strings.Join(parts, "/")
}

// entries returns the value of the attribute entries: the keys, separated by commas.
func (p descriptorPath) entries() string {
	keys := make([]string, len(p.steps))
	for i := range p.steps {
		keys[i] = p.steps[i].descriptor.key
	}
	return strings.Join(keys, ",")
}

// extend returns the path with one more step. If problem is not empty, it says why no rule is possible at the end of the path.
func (p descriptorPath) extend(x *descriptor, siblings []*descriptor) (extended descriptorPath, problem string) {
	s, covering := newStep(x, siblings)
	occurrence := 1
	for _, earlier := range p.steps {
		if earlier.descriptor.key == x.key {
			occurrence++
		}
	}
	if occurrence > 1 {
		s.attribute += "." + strconv.Itoa(occurrence)
	}
	extended = descriptorPath{p.domain, append(p.steps[:len(p.steps):len(p.steps)], s)}
	switch {
	case covering != nil:
		return extended, fmt.Sprintf("unreachable, because %s at %s matches all its values first: narrow that descriptor, "+
			"or remove this one", covering, covering.at)
	case strings.Contains(x.key, ","):
		return extended, "no rule created: its key contains a comma, which separates keys in rules: rename the key here and in Envoy"
	case x.manyKeys():
		return extended, "no rule created: its key contains a wildcard, and a rule matches one key: write a descriptor for each key"
	}
	for _, earlier := range p.steps {
		if earlier.attribute == s.attribute {
			return extended, fmt.Sprintf("no rule created: two entries would both become the attribute descriptor.%s: "+
				"rename one of the keys here and in Envoy", s.attribute)
		}
	}
	return extended, ""
}

// level converts descriptors and all their children.
func (im *importer) level(from descriptorPath, all, siblings []*descriptor) {
	for _, x := range all {
		path, problem := from.extend(x, siblings)
		for _, key := range x.ignored {
			im.report(key, path, "%s", ignoredText(key))
		}
		if problem != "" {
			im.report(x.node, path, "%s", problem)
			continue
		}
		im.descriptor(path, x)
		im.level(path, x.below, x.below)
	}
}

func (im *importer) descriptor(path descriptorPath, x *descriptor) {
	if len(x.metrics) > 0 && !im.metrics { // reported once, because there may be hundreds
		im.report(x.metrics[0], path, "Headgate has metrics per rule, not per value, so that their number is bounded: for metrics of one "+
			"value, write a descriptor with it; reported once per file")
		im.metrics = true
	}
	if x.metadata != nil && len(x.metadata.Entries) > 0 {
		im.report(x.metadata, path, "metadata is not sent to Envoy: the response's dynamic metadata names the rule instead, as rule or "+
			"would_deny: use that in Envoy, and keep descriptions in the rule's labels")
	}
	if x.glob() {
		im.report(x.node.Find([]string{"value"}), path, "a * within a value matches any text, as in envoyproxy/ratelimit since March 2026; "+
			"earlier releases match it literally: for that, match the literal value in the rule")
	}
	if x.limit == nil {
		im.test(path, nil)
		return
	}
	for _, n := range x.limit.replaces {
		im.report(n, path, "a rule sees one descriptor at a time, so %s is not replaced: let Envoy send only one of the two "+
			"descriptors", n.Text)
	}
	if x.limit.unlimited {
		im.test(path, nil)
		return
	}
	if x.limit.requests > headgate.MaxCost {
		im.report(x.limit.node.Find([]string{"requests_per_unit"}), path, "capped at %d, the largest limit of a rule: "+
			"write unlimited: true if no limit is needed", headgate.MaxCost)
	}
	if x.quota {
		im.report(x.node.Find([]string{"quota_mode"}), path, "the rule is in shadow mode and denies nothing: read violations from "+
			"would_deny of the response's metadata, not from quotaModeViolations")
	}
	r := newRule(path, x)
	r.id = unique(im.ids, idOf(path))
	if len(r.when) > maxCondition || !r.valid() {
		im.report(x.node, path, "no rule created: it has more siblings with a wildcard than a condition can exclude: use fewer")
		return
	}
	im.file.rules = append(im.file.rules, r)
	im.test(path, &r)
}

func (im *importer) report(n *node, path descriptorPath, format string, args ...any) {
	im.notConverted.Add(im.source, &yamldoc.Error{
		File: im.file.name, Line: n.Line, Column: n.Column, Problem: path.String() + ": " + fmt.Sprintf(format, args...),
	})
}
