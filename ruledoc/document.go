package ruledoc

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Document is what rule files say.
type Document struct {
	// Files are those that were read, in order.
	Files []string
	// Rules are compiled, and capped by Mode.
	Rules *headgate.RuleSet
	// Source is the rules as they were written, in order.
	Source []headgate.Rule
	// Mode is the most that any rule may do. If several files have one, the most restrictive holds, so that a file with
	// nothing but "mode: off" stops everything.
	Mode headgate.Mode
	// Overrides and Exemptions are those written beside the rules; expired ones are among them and have no effect.
	Overrides  []headgate.Override
	Exemptions []headgate.Exemption
}

// Load reads files and directories as one document. Of a directory it takes *.yaml, *.yml and *.json in the order of
// their names, without descending; hidden files and those ending in _test are left out. If the files could be read but
// not understood, its error is an Errors.
func Load(paths ...string) (*Document, error) {
	sources, err := readFiles(paths)
	if err != nil {
		return nil, err
	}
	return parseSources(sources)
}

// Parse reads one document in YAML or JSON. Name stands for its file in errors, which are of type Errors.
func Parse(name string, data []byte) (*Document, error) {
	return parseSources([]source{{name, data}})
}

// parseSources reads all sources as one document.
func parseSources(sources []source) (*Document, error) {
	r := &reader{sources: slices.Clone(sources), ids: map[string]*readRule{}}
	r.known = known{map[string]headgate.Condition{}, map[string]*time.Location{}}
	for i := range r.sources {
		r.document.Files = append(r.document.Files, r.sources[i].name)
		r.read(i)
	}
	r.readExceptions()
	r.compile()
	if err := r.report.errors(r.sources); err != nil {
		return nil, err
	}
	return &r.document, nil
}

// reader brings together what the sources say.
type reader struct {
	sources  []source
	report   report
	document Document
	rules    []*readRule
	ids      map[string]*readRule
	known    known
	broken   bool // a source could not be read at all, so that its rules are not known
	// Exceptions are read when all rules are known.
	overrides, exemptions []exceptionNode
}

type exceptionNode struct {
	decoder *decoder
	node    *node
}

// top is a document's mapping.
type top struct {
	reader *reader
	mode   headgate.Mode
}

var topFields = []field[top]{
	{"mode", func(d *decoder, n *node, key string, t *top) { d.word(n, key, modeWords, (*uint8)(&t.mode)) }},
	{"rules", func(d *decoder, n *node, key string, t *top) {
		for _, item := range d.list(n, key, "rules") {
			t.reader.addRule(d, item)
		}
	}},
	{"overrides", func(d *decoder, n *node, key string, t *top) {
		for _, item := range d.list(n, key, "overrides") {
			t.reader.overrides = append(t.reader.overrides, exceptionNode{d, item})
		}
	}},
	{"exemptions", func(d *decoder, n *node, key string, t *top) {
		for _, item := range d.list(n, key, "exemptions") {
			t.reader.exemptions = append(t.reader.exemptions, exceptionNode{d, item})
		}
	}},
}

func (d *decoder) list(n *node, key, what string) []*node {
	if n.kind != list {
		d.bad(n, "%s wants a list: begin each of the %s with a dash", key, what)
	}
	return n.items
}

// read reads the source with this number.
func (r *reader) read(number int) {
	checked, problem := r.sources[number].check()
	r.sources[number] = checked
	if problem != nil {
		r.broken = true
		r.report.add(number, problem)
		return
	}
	documents, problems := parseYAML(checked)
	for _, p := range problems {
		r.report.add(number, p)
	}
	d := &decoder{source: checked, number: number, report: &r.report, known: &r.known}
	if len(documents) == 0 {
		r.broken = true
		if len(problems) == 0 {
			d.badAt(1, 1, "the file is empty: write \"rules: []\" if it is to have no rules")
		}
	}
	for _, n := range documents {
		r.readDocument(d, n)
	}
}

func (r *reader) readDocument(d *decoder, n *node) {
	if n.kind == list {
		d.bad(n, "write rules: on the line before the list, and indent the list")
		return
	}
	if _, ok := n.get("id"); ok {
		d.bad(n, "a rule stands in a list: write rules: first, and the rule below it after a dash")
		return
	}
	// Keys that begin with x- are for anchors and for other programs; $schema tells editors about JSON files.
	own := *n
	own.index = nil
	own.entries = slices.DeleteFunc(slices.Clone(n.entries), func(e entry) bool {
		return strings.HasPrefix(e.key.text, "x-") || e.key.text == "$schema"
	})
	t := top{reader: r}
	fields(d, &own, "a rule file", topFields, &t)
	r.document.Mode = max(r.document.Mode, t.mode)
}

func (r *reader) addRule(d *decoder, n *node) {
	if n.kind != mapping {
		d.bad(n, "a rule wants keys and values (id, by, limit …), not %s", describe(n))
		return
	}
	rule := d.readRule(n)
	r.rules = append(r.rules, rule)
	if r.ids[rule.ID] == nil {
		r.ids[rule.ID] = rule
	}
}

// readExceptions leaves out those of rules that could not be read, about which nothing can be said.
func (r *reader) readExceptions() {
	if r.broken {
		return
	}
	delete(r.ids, "")
	for _, o := range r.overrides {
		r.document.Overrides = append(r.document.Overrides, o.decoder.override(o.node, r.ids))
	}
	for _, x := range r.exemptions {
		r.document.Exemptions = append(r.document.Exemptions, x.decoder.exemption(x.node, r.ids))
	}
}
