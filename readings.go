package headgate

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/pathreading"
)

// maxReadings is the largest number of readings of a path that are evaluated, including the first.
const maxReadings = 1 + pathreading.MaxOthers

// hit is a rule that applies to a request in one of its readings, identified by the indexes of its path and its method.
type hit struct {
	rule         int32
	path, method int32
}

// readings are the possible interpretations of a request; see OtherPath. Index 0 is the primary reading.
type readings struct {
	paths, methods []string
	hits           []hit // sorted; only for a request with several readings
	found          []int32

	// when caches the results of conditions, which may be slow, by the parts of a reading that they depend on.
	when map[whenReading]bool
	// attributes are a copy of the request's attributes with the path and method of the reading that was used last.
	attributes Attributes
	copied     bool
}

// whenReading is the argument of a cached condition: the path and the method, as far as it reads them.
type whenReading struct {
	check        *check
	path, method string
}

// holds reports whether the condition of a rule holds in the current reading. It calls the condition once for all readings that
// do not differ for it.
func (r *readings) holds(c *check, v *view) bool {
	key := whenReading{check: c}
	if c.readsPath {
		key.path = v.values[slotPath]
	}
	if c.readsMethod {
		key.method = v.values[slotMethod]
	}
	holds, known := r.when[key]
	if !known {
		holds = c.when(v.readingAttributes())
		if r.when == nil {
			r.when = map[whenReading]bool{}
		}
		r.when[key] = holds
	}
	return holds
}

// ambiguous reports whether there are several readings.
func (r *readings) ambiguous() bool { return len(r.paths) > 1 || len(r.methods) > 1 }

// collect sets the readings of a request that may differ for the rules.
func (r *readings) collect(s *RuleSet, values []string) {
	r.paths, r.methods = append(r.paths[:0], values[slotPath]), append(r.methods[:0], values[slotMethod])
	r.hits = r.hits[:0]
	r.copied = false
	clear(r.when)
	if other := values[slotOtherPath]; other != "" && values[slotPath] != "" && s.readsPath {
		for path := range strings.SplitSeq(other, "?") {
			if path != "" && len(r.paths) < maxReadings && !slices.Contains(r.paths, path) {
				r.paths = append(r.paths, path)
			}
		}
	}
	other := values[slotOtherMethod]
	if other == "" || values[slotMethod] == "" || !s.readsMethod {
		return
	}
	methods := s.methods
	if other != AnyMethod {
		methods = []string{other}
	}
	for _, method := range methods {
		if !slices.Contains(r.methods, method) {
			r.methods = append(r.methods, method)
		}
	}
}

// with returns the attributes of a request with another path and method. They are valid until the next call.
func (r *readings) with(a Attributes, path, method string) Attributes {
	if a[attrPath] == path && a[attrMethod] == method {
		return a
	}
	if !r.copied {
		if r.attributes == nil {
			r.attributes = make(Attributes, len(a))
		}
		clear(r.attributes)
		maps.Copy(r.attributes, a)
		r.copied = true
	}
	r.attributes[attrPath], r.attributes[attrMethod] = path, method
	return r.attributes
}

// reset drops all references to the request.
func (r *readings) reset() {
	clear(r.paths)
	clear(r.methods)
	clear(r.attributes)
	clear(r.when)
	r.copied = false
}

// matchReadings appends the rules that apply in at least one reading, in their order, and records the readings in which they apply
// as hits. Rules compete within each reading: a rule for a reading that the backend does not share cannot displace a rule for the
// backend's reading.
func (s *RuleSet) matchReadings(v *view, found []int32) []int32 {
	r := &v.readings
	for p := range r.paths {
		for m := range r.methods {
			v.selectReading(p, m)
			r.found = s.matchReading(v, r.found[:0])
			for _, n := range r.found {
				r.hits = append(r.hits, hit{n, int32(p), int32(m)})
			}
		}
	}
	v.selectReading(0, 0)
	slices.SortFunc(r.hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.path, b.path), cmp.Compare(a.method, b.method))
	})
	for i, h := range r.hits {
		if i == 0 || h.rule != r.hits[i-1].rule {
			found = append(found, h.rule)
		}
	}
	return found
}

// hitsOf returns the readings in which a rule applies. A rule that was requested by its ID applies in all readings.
func (r *readings) hitsOf(rule int32, byID bool) []hit {
	if byID {
		r.hits = r.hits[:0]
		for p := range r.paths {
			for m := range r.methods {
				r.hits = append(r.hits, hit{rule, int32(p), int32(m)})
			}
		}
		return r.hits
	}
	from, _ := slices.BinarySearchFunc(r.hits, rule, func(h hit, rule int32) int { return cmp.Compare(h.rule, rule) })
	to := from
	for to < len(r.hits) && r.hits[to].rule == rule {
		to++
	}
	return r.hits[from:to]
}

// countedPath returns the path that a rule counts a reading under. Readings that differ only in spelling share it.
func (r *readings) countedPath(n int32, ignoreCase bool) string {
	path := r.paths[n]
	if n > 0 {
		path = pathreading.Lenient(path)
	}
	if ignoreCase {
		path = foldCase(path)
	}
	return path
}

// countsReadings reports whether a rule may count the request under other values than its attributes.
func (ev *evaluation) countsReadings(rule *compiledRule) bool {
	by := &ev.set.by[rule.by]
	return (by.path || by.method) && ev.view.readings.ambiguous() || by.path && rule.Match.IgnoreCase
}

// chargeReadings appends the charges of a rule that counts by path or method, once for each value that they may have.
func (ev *evaluation) chargeReadings(l *Limiter, lookup *exceptionLookup, n int32, cost int64, byID bool) {
	rule, readings := &ev.set.rules[n], &ev.view.readings
	hits := []hit{{rule: n}}
	if readings.ambiguous() {
		hits = readings.hitsOf(n, byID)
	}
	first := len(ev.subjects)
	for _, h := range hits {
		path := readings.countedPath(h.path, rule.Match.IgnoreCase)
		attributes := readings.with(ev.view.attributes, path, readings.methods[h.method])
		subject, missing := l.subjects.of(ev.set.by[rule.by].resolve(attributes), attributes)
		if missing != "" && rule.OnMissing == SkipMissing {
			return
		}
		if slices.ContainsFunc(ev.subjects[first:], func(k knownSubject) bool { return k.subject == subject }) {
			continue
		}
		ev.subjects = append(ev.subjects, knownSubject{notShared, subject, missing})
		from := len(ev.info)
		ev.charge(lookup, n, subject, missing, cost)
		for i := from; i < len(ev.info); i++ {
			ev.info[i].repeated = len(ev.subjects) > first+1
		}
	}
}

// initReadings sets whether any rule reads the path or the method, and the methods that AnyMethod stands for.
func (s *RuleSet) initReadings() {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	for i := range s.rules {
		r := &s.rules[i]
		reads := slices.Concat(r.By, r.When.Attributes)
		for _, c := range r.allConditions() {
			reads = append(reads, c.name)
			if c.name == attrMethod {
				methods = append(methods, slices.Concat(c.pattern.Values, c.pattern.Not)...)
				if c.pattern.Prefix != "" {
					methods = append(methods, c.pattern.Prefix)
				}
			}
		}
		unknown := r.When.Holds != nil && r.When.Attributes == nil
		s.readsPath = s.readsPath || unknown || slices.Contains(reads, attrPath)
		s.readsMethod = s.readsMethod || unknown || slices.Contains(reads, attrMethod)
	}
	slices.Sort(methods)
	s.methods = append(slices.Compact(methods), AnyMethod) // stands for a method that no rule names
}
