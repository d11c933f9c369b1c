package ruledoc

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// Document is the content of one or more rule files.
type Document struct {
	// Files are the names of the files, in the order in which they were read.
	Files []string
	// Rules is the compiled rules with Mode applied.
	Rules *headgate.RuleSet
	// Source is the rules as written, in document order.
	Source []headgate.Rule
	// Mode caps the mode of all rules. If several files set it, off takes precedence over shadow and shadow over enforce, so that
	// a file that only contains "mode: off" disables all rules.
	Mode headgate.Mode
	// Overrides and Exemptions are those of the files. They include expired ones, which have no effect.
	Overrides  []headgate.Override
	Exemptions []headgate.Exemption
}

// Load reads files and directories as one document. From a directory it reads *.yaml, *.yml and *.json in the order of
// their names; it skips subdirectories, hidden files and files whose name ends in _test. If the files are readable but
// invalid, the error is of type Errors.
func Load(paths ...string) (*Document, error) {
	sources, err := readFiles(paths)
	if err != nil {
		return nil, err
	}
	return parseSources(sources)
}

// Parse parses one document in YAML or JSON. Errors are of type Errors, with name as the file name.
func Parse(name string, data []byte) (*Document, error) {
	return parseSources([]source{{Name: name, Data: data}})
}

// ParseRule parses a single rule in YAML or JSON: one item of a document's list of rules. It does not check whether the rule
// fits the one whose counters it charges (see headgate.Rule.Counter), which is not known here. Errors are of type Errors, with
// name as the file name.
func ParseRule(name string, data []byte) (headgate.Rule, error) {
	r := newReader(source{Name: name, Data: data})
	r.readOne("no rule found: write its keys and values (id, by, limit …)", r.addRule)
	r.compile(compileAlone)
	if err := r.errors(); err != nil {
		return headgate.Rule{}, err
	}
	return r.document.Source[0], nil
}

// parseSources parses all sources as one document.
func parseSources(sources []source) (*Document, error) {
	r := newReader(sources...)
	for i := range r.sources {
		r.document.Files = append(r.document.Files, r.sources[i].Name)
		r.read(i, "the file is empty: write \"rules: []\" for a file without rules", r.readDocument)
	}
	r.readExceptions()
	r.compile(headgate.Compile)
	if err := r.errors(); err != nil {
		return nil, err
	}
	return &r.document, nil
}

// reader merges the content of all sources into one document.
type reader struct {
	sources  []source
	report   yamldoc.Report
	document Document
	rules    []*parsedRule
	ids      map[string]*parsedRule
	cache    cache
	broken   bool // a source could not be parsed at all, so its rules are unknown
	// Exceptions are decoded after all rules.
	overrides, exemptions []exceptionNode
}

func newReader(sources ...source) *reader {
	r := &reader{sources: slices.Clone(sources), ids: map[string]*parsedRule{}}
	r.cache = cache{map[string]headgate.Condition{}, map[string]*time.Location{}}
	return r
}

// errors returns all problems of the sources as Errors, or nil.
func (r *reader) errors() error { return errorsOf(&r.report, r.sources) }

type exceptionNode struct {
	decoder *decoder
	node    *node
}

// rootMapping is the top-level mapping of a document, for decoding and encoding.
type rootMapping struct {
	reader   *reader
	document *Document
	mode     headgate.Mode
}

var documentKeys = newObject(
	enumField("mode", "caps the mode of all rules: with `shadow` no rule denies, with `off` no rule applies (the kill switch); if "+
		"several files set it, `off` takes precedence over `shadow`, and `shadow` over `enforce`",
		modeNames, func(t *rootMapping) *headgate.Mode { return &t.mode }),
	listField("rules", "the rules, in any order", "rule", func(t *rootMapping, d *decoder, item *node) { t.reader.addRule(d, item) },
		func(e *encoder, t *rootMapping) *node { return listOf(e, t.document.Source, (*encoder).documentRule) }),
	listField("overrides", "[other limits for individual subjects](#overrides-tiers-and-exemptions)", "override",
		func(t *rootMapping, d *decoder, item *node) {
			t.reader.overrides = append(t.reader.overrides, exceptionNode{d, item})
		},
		func(e *encoder, t *rootMapping) *node { return listOf(e, t.document.Overrides, (*encoder).override) }),
	listField("exemptions", "subjects that are exempt from one rule or from all rules", "exemption",
		func(t *rootMapping, d *decoder, item *node) {
			t.reader.exemptions = append(t.reader.exemptions, exceptionNode{d, item})
		},
		func(e *encoder, t *rootMapping) *node { return listOf(e, t.document.Exemptions, (*encoder).exemption) }),
)

// list returns the items of a list. It adds an error if n is not a list.
func (d *decoder) list(n *node, key string) []*node {
	if n.Kind != yamldoc.List {
		d.Bad(n, "%s: must be a list: start each item with a dash", key)
	}
	return n.Items
}

// read parses the source with this index and calls each for its documents. Empty is the problem if there is no document.
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
	d := newDecoder(checked, number, &r.report, &r.cache)
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

// readOne works like read, for a source that must have exactly one document.
func (r *reader) readOne(empty string, read func(*decoder, *node)) {
	seen := false
	r.read(0, empty, func(d *decoder, n *node) {
		if seen {
			d.Bad(n, "only one document is allowed here: remove this one")
			return
		}
		seen = true
		read(d, n)
	})
}

func (r *reader) readDocument(d *decoder, n *node) {
	if n.Kind == yamldoc.List {
		d.Bad(n, "the document must be a mapping, not a list: write rules: on the line above the list, and indent the list")
		return
	}
	if _, ok := n.Get("id"); ok {
		d.Bad(n, "a rule must be an item of the list rules: write rules: first, then the rule below it after a dash")
		return
	}
	// Keys that begin with x- are for anchors and for other programs; $schema is for editors of JSON files.
	known := n.Without(func(key string) bool { return strings.HasPrefix(key, "x-") || key == "$schema" })
	t := rootMapping{reader: r}
	documentKeys.read(d, known, "a rule file", &t)
	r.document.Mode = max(r.document.Mode, t.mode)
}

func (r *reader) addRule(d *decoder, n *node) {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "a rule must be a mapping of keys to values (id, by, limit …), not %s", n.Describe())
		return
	}
	rule := d.parseRule(n)
	r.rules = append(r.rules, rule)
	if r.ids[rule.ID] == nil {
		r.ids[rule.ID] = rule
	}
}

// readExceptions decodes overrides and exemptions, unless some rules are unknown: it could not check whether their rules
// exist.
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
