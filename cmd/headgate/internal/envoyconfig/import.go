package envoyconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// MaxBytes is how large a file may be.
const MaxBytes = 16 << 20

// maxCondition is how long the when of a rule may be.
const maxCondition = 2048

// Imported is what became of configs.
type Imported struct {
	// Files are those of the sources, in their order.
	Files []File
	// Left is what rules cannot say, each with what to do instead.
	Left yamldoc.Errors
}

// File is what became of one config.
type File struct {
	name  string
	rules []rule
	cases []testCase
}

// Import turns configs into rules. Those of the same domain are one, as with MERGE_DOMAIN_CONFIG. If something is wrong
// with them, and the service itself would not take them either, the error is a yamldoc.Errors.
func Import(sources ...yamldoc.Source) (*Imported, error) {
	im := importer{ids: map[string]bool{}}
	sources = slices.Clone(sources)
	configs := make([]config, len(sources))
	domains := map[string][]*descriptor{}
	var broken yamldoc.Report
	for i, s := range sources {
		checked, problem := s.Check()
		if len(s.Data) > MaxBytes {
			checked.Data = nil
			problem = &yamldoc.Error{File: s.Name, Line: 1, Column: 1, Problem: "the file is larger than 16 MB: split it"}
		}
		sources[i] = checked
		if problem != nil {
			broken.Add(i, problem)
			continue
		}
		d := &decoder{Source: checked, Number: i, Report: &broken}
		c := readConfig(d)
		checkTwice(d, c.descriptors, domains[c.domain])
		configs[i] = c
		domains[c.domain] = append(domains[c.domain], c.descriptors...)
	}
	if err := broken.Errors(sources); err != nil {
		return nil, err
	}
	all := &Imported{}
	for i, c := range configs {
		im.file = &File{name: sources[i].Name}
		im.source, im.names, im.metrics = i, map[string]bool{}, false
		for _, key := range c.odd {
			im.tell(key, way{domain: c.domain}, "%s", oddity(key))
		}
		im.level(way{domain: c.domain}, c.descriptors, domains[c.domain])
		all.Files = append(all.Files, *im.file)
	}
	all.Left = im.left.Errors(sources)
	return all, nil
}

// importer makes the rules of one file after another.
type importer struct {
	left   yamldoc.Report
	ids    map[string]bool
	source int
	file   *File
	names  map[string]bool // of the file's tests

	metrics bool // were told of
}

// way is how requests get to a descriptor.
type way struct {
	domain string
	steps  []step
}

// String is the way in words: messaging/message_type=marketing/to_number.
func (w way) String() string {
	parts := []string{w.domain}
	for i := range w.steps {
		parts = append(parts, w.steps[i].descriptor.String())
	}
	return strings.Join(parts, "/")
}

// entries are the keys as the attribute of that name has them.
func (w way) entries() string {
	keys := make([]string, len(w.steps))
	for i := range w.steps {
		keys[i] = w.steps[i].descriptor.key
	}
	return strings.Join(keys, ",")
}

// to is the way one step further. The problem is why there can be no rule at its end.
func (w way) to(x *descriptor, siblings []*descriptor) (further way, problem string) {
	s, taker := newStep(x, siblings)
	again := 1
	for _, earlier := range w.steps {
		if earlier.descriptor.key == x.key {
			again++
		}
	}
	if again > 1 {
		s.attribute += "." + strconv.Itoa(again)
	}
	further = way{w.domain, append(w.steps[:len(w.steps):len(w.steps)], s)}
	switch {
	case taker != nil:
		return further, fmt.Sprintf("no request comes here, because %s at %s takes its values first: narrow that "+
			"one, or remove this", taker, taker.at)
	case strings.Contains(x.key, ","):
		return further, "there is no rule for it: its key has a comma, which stands between keys in rules; call it " +
			"otherwise, in Envoy, too"
	case x.manyKeys():
		return further, "there is no rule for it: its key has a star and stands for many, and a rule is for one; " +
			"write a descriptor for each"
	}
	for _, earlier := range w.steps {
		if earlier.attribute == s.attribute {
			return further, fmt.Sprintf("there is no rule for it: two entries would both be the attribute descriptor.%s; "+
				"call one of the keys otherwise, in Envoy, too", s.attribute)
		}
	}
	return further, ""
}

// level makes the rules of some descriptors and of all below them.
func (im *importer) level(from way, all, siblings []*descriptor) {
	for _, x := range all {
		w, problem := from.to(x, siblings)
		for _, key := range x.odd {
			im.tell(key, w, "%s", oddity(key))
		}
		if problem != "" {
			im.tell(x.node, w, "%s", problem)
			continue
		}
		im.descriptor(w, x)
		im.level(w, x.below, x.below)
	}
}

func (im *importer) descriptor(w way, x *descriptor) {
	if len(x.metrics) > 0 && !im.metrics { // there may be hundreds, and they are not what matters
		im.tell(x.metrics[0], w, "metrics are by rule here, whatever the value, so that their number is bounded; to see a value "+
			"apart, write a descriptor with it; this is said once for the file")
		im.metrics = true
	}
	if x.metadata != nil && len(x.metadata.Entries) > 0 {
		im.tell(x.metadata, w, "metadata is not sent to Envoy: the response's dynamic metadata names the rule instead, as rule or "+
			"would_deny; let Envoy go by that, and keep what is for people in the rule's labels")
	}
	if x.glob() {
		im.tell(x.node.Find([]string{"value"}), w, "a star within a value stands for any text, as it does there since March 2026; "+
			"releases before take it literally: to have that, match the value in the rule as it is written")
	}
	if x.limit == nil {
		im.test(w, nil)
		return
	}
	for _, n := range x.limit.replaces {
		im.tell(n, w, "a rule sees one descriptor, not which others come with it, and %s is not replaced: let Envoy send "+
			"only one of the two descriptors", n.Text)
	}
	if x.limit.unlimited {
		im.test(w, nil)
		return
	}
	if x.limit.requests > headgate.MaxCost {
		im.tell(x.limit.node.Find([]string{"requests_per_unit"}), w, "the most that can be counted is %d, and the rule "+
			"says that: write unlimited: true if it need not be", headgate.MaxCost)
	}
	if x.quota {
		im.tell(x.node.Find([]string{"quota_mode"}), w, "the rule is in shadow and denies nothing; that it would have is "+
			"not in quotaModeViolations of the response's metadata, but in would_deny: look there")
	}
	r := newRule(w, x)
	r.id = unique(im.ids, idOf(w))
	if len(r.when) > maxCondition || !r.valid() {
		im.tell(x.node, w, "there is no rule for it: there are more values with a star beside it than a condition holds; "+
			"use fewer")
		return
	}
	im.file.rules = append(im.file.rules, r)
	im.test(w, &r)
}

func (im *importer) tell(n *node, w way, format string, args ...any) {
	im.left.Add(im.source, &yamldoc.Error{
		File: im.file.name, Line: n.Line, Column: n.Column, Problem: w.String() + ": " + fmt.Sprintf(format, args...),
	})
}
