package headgate

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/pathreading"
)

// maxReadings is how many readings of a path are looked at, the first included.
const maxReadings = 1 + pathreading.MaxOthers

// hit is a rule that applies to a request in one of its readings: those of its path and its method, by number.
type hit struct {
	rule         int32
	path, method int32
}

// readings are the ways in which a request may be read; see OtherPath. Number 0 is the first reading.
type readings struct {
	paths, methods []string
	hits           []hit // of a request with several readings, sorted
	found          []int32

	// when has what conditions said of readings that they tell apart: each may take long.
	when map[whenReading]bool
	// attributes are a copy of the request's, in the reading that was last asked about.
	attributes Attributes
	copied     bool
}

// whenReading is what a condition was asked about: a path and a method, as far as it reads them.
type whenReading struct {
	check        *check
	path, method string
}

// holds asks the condition of a rule about the present reading, once for all readings that are the same to it.
func (r *readings) holds(c *check, v *view) bool {
	asked := whenReading{check: c}
	if c.readsPath {
		asked.path = v.values[slotPath]
	}
	if c.readsMethod {
		asked.method = v.values[slotMethod]
	}
	holds, known := r.when[asked]
	if !known {
		holds = c.when(v.inReading())
		if r.when == nil {
			r.when = map[whenReading]bool{}
		}
		r.when[asked] = holds
	}
	return holds
}

// ambiguous reports whether there are several readings.
func (r *readings) ambiguous() bool { return len(r.paths) > 1 || len(r.methods) > 1 }

// collect finds the readings of a request that the rules tell apart.
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

// with is the attributes of a request with another path and method. They are valid until it is called again.
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

// forget lets go of everything that came with the request.
func (r *readings) forget() {
	clear(r.paths)
	clear(r.methods)
	clear(r.attributes)
	clear(r.when)
	r.copied = false
}

// matchReadings appends the rules that apply in any reading, in their order. Rules compete within each reading: one that a backend
// may not see does not displace one that it may. What applies in which reading is noted as hits.
func (s *RuleSet) matchReadings(v *view, found []int32) []int32 {
	r := &v.readings
	for p := range r.paths {
		for m := range r.methods {
			v.read(p, m)
			r.found = s.matchReading(v, r.found[:0])
			for _, n := range r.found {
				r.hits = append(r.hits, hit{n, int32(p), int32(m)})
			}
		}
	}
	v.read(0, 0)
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

// hitsOf are the readings in which a rule applies. One that was asked for by its ID applies in all of them.
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

// countedPath is the path that a rule counts a reading under. Readings that differ only in spelling are counted as one.
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

// countsReadings reports whether a rule may count the request under something else than its attributes as they are.
func (ev *evaluation) countsReadings(rule *compiledRule) bool {
	by := &ev.set.by[rule.by]
	return (by.path || by.method) && ev.view.readings.ambiguous() || by.path && rule.Match.IgnoreCase
}

// chargeReadings charges a rule that counts by path or method once for each value that the request may have of them.
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

// readsReadings finds out what the rules tell apart: paths, methods, and which methods AnyMethod stands for.
func (s *RuleSet) readsReadings() {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	for i := range s.rules {
		r := &s.rules[i]
		looksAt := slices.Concat(r.By, r.When.Attributes)
		for _, c := range r.conditions {
			looksAt = append(looksAt, c.name)
			if c.name == attrMethod {
				methods = append(methods, slices.Concat(c.pattern.Values, c.pattern.Not)...)
				if c.pattern.Prefix != "" {
					methods = append(methods, c.pattern.Prefix)
				}
			}
		}
		unknown := r.When.Holds != nil && r.When.Attributes == nil
		s.readsPath = s.readsPath || unknown || slices.Contains(looksAt, attrPath)
		s.readsMethod = s.readsMethod || unknown || slices.Contains(looksAt, attrMethod)
	}
	slices.Sort(methods)
	s.methods = append(slices.Compact(methods), AnyMethod) // which is one that no rule names
}
