package ruledoc

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
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
	return parseSources([]source{{Name: name, Data: data}})
}

// ParseRule reads one rule in YAML or JSON, without the list that it stands in within a document. Name stands for its file
// in errors, which are of type Errors.
func ParseRule(name string, data []byte) (headgate.Rule, error) {
	r := newReader(source{Name: name, Data: data})
	r.readOne("there is no rule here: write its keys and values (id, by, limit …)", r.addRule)
	r.compile()
	if err := r.errors(); err != nil {
		return headgate.Rule{}, err
	}
	return r.document.Source[0], nil
}

// parseSources reads all sources as one document.
func parseSources(sources []source) (*Document, error) {
	r := newReader(sources...)
	for i := range r.sources {
		r.document.Files = append(r.document.Files, r.sources[i].Name)
		r.read(i, "the file is empty: write \"rules: []\" if it is to have no rules", r.readDocument)
	}
	r.readExceptions()
	r.compile()
	if err := r.errors(); err != nil {
		return nil, err
	}
	return &r.document, nil
}

// reader brings together what the sources say.
type reader struct {
	sources  []source
	report   yamldoc.Report
	document Document
	rules    []*readRule
	ids      map[string]*readRule
	known    known
	broken   bool // a source could not be read at all, so that its rules are not known
	// Exceptions are read when all rules are known.
	overrides, exemptions []exceptionNode
}

func newReader(sources ...source) *reader {
	r := &reader{sources: slices.Clone(sources), ids: map[string]*readRule{}}
	r.known = known{map[string]headgate.Condition{}, map[string]*time.Location{}}
	return r
}

// errors is everything that is wrong with the sources, as an Errors, or nil.
func (r *reader) errors() error { return errorsOf(&r.report, r.sources) }

type exceptionNode struct {
	decoder *decoder
	node    *node
}

// top is a document's mapping: what it is read into, and what it is written from.
type top struct {
	reader   *reader
	document *Document
	mode     headgate.Mode
}

var topKeys = objectOf(
	wordField("mode", "the most that any rule may do: `shadow` or `off` is the kill switch; if several files have it, the most "+
		"restrictive holds", modeWords, func(t *top) *headgate.Mode { return &t.mode }),
	listField("rules", "the rules; their order does not matter", "rule", func(t *top, d *decoder, item *node) { t.reader.addRule(d, item) },
		func(e *encoder, t *top) *node { return listOf(e, t.document.Source, (*encoder).documentRule) }),
	listField("overrides", "[other limits for single subjects](#overrides-tiers-and-exemptions)", "override",
		func(t *top, d *decoder, item *node) {
			t.reader.overrides = append(t.reader.overrides, exceptionNode{d, item})
		},
		func(e *encoder, t *top) *node { return listOf(e, t.document.Overrides, (*encoder).override) }),
	listField("exemptions", "who is free of a rule, or of all rules", "exemption",
		func(t *top, d *decoder, item *node) {
			t.reader.exemptions = append(t.reader.exemptions, exceptionNode{d, item})
		},
		func(e *encoder, t *top) *node { return listOf(e, t.document.Exemptions, (*encoder).exemption) }),
)

func (d *decoder) list(n *node, key, what string) []*node {
	if n.Kind != yamldoc.List {
		d.Bad(n, "%s wants a list: begin each of the %s with a dash", key, what)
	}
	return n.Items
}

// read hands out the documents of the source with this number; empty says what is wrong if there is none.
func (r *reader) read(number int, empty string, each func(*decoder, *node)) {
	checked, problem := check(r.sources[number])
	r.sources[number] = checked
	if problem != nil {
		r.broken = true
		r.report.Add(number, problem)
		return
	}
	documents, problems := yamldoc.Parse(checked)
	for _, p := range problems {
		r.report.Add(number, p)
	}
	d := newDecoder(checked, number, &r.report, &r.known)
	if len(documents) == 0 {
		r.broken = true
		if len(problems) == 0 {
			d.BadAt(1, 1, empty)
		}
	}
	for _, n := range documents {
		each(d, n)
	}
}

// readOne is read for a source with a single document.
func (r *reader) readOne(empty string, read func(*decoder, *node)) {
	seen := false
	r.read(0, empty, func(d *decoder, n *node) {
		if seen {
			d.Bad(n, "one document is wanted, and this is another: write it apart")
			return
		}
		seen = true
		read(d, n)
	})
}

func (r *reader) readDocument(d *decoder, n *node) {
	if n.Kind == yamldoc.List {
		d.Bad(n, "write rules: on the line before the list, and indent the list")
		return
	}
	if _, ok := n.Get("id"); ok {
		d.Bad(n, "a rule stands in a list: write rules: first, and the rule below it after a dash")
		return
	}
	// Keys that begin with x- are for anchors and for other programs; $schema tells editors about JSON files.
	own := n.Without(func(key string) bool { return strings.HasPrefix(key, "x-") || key == "$schema" })
	t := top{reader: r}
	topKeys.read(d, own, "a rule file", &t)
	r.document.Mode = max(r.document.Mode, t.mode)
}

func (r *reader) addRule(d *decoder, n *node) {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "a rule wants keys and values (id, by, limit …), not %s", n.Describe())
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
