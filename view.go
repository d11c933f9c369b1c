package headgate

// Slots that every rule set has. Further slots are for the other attributes that its rules read.
const (
	slotPath = iota
	slotOtherPath
	slotMethod
	slotOtherMethod
	slotTier
	fixedSlots
)

// slots numbers the attributes that rules read.
type slots struct {
	names  []string
	number map[string]int
}

func newSlots() slots {
	s := slots{number: map[string]int{}}
	for _, name := range []string{attrPath, OtherPath, attrMethod, OtherMethod, attrTier} {
		s.of(name)
	}
	return s
}

// of returns the number of an attribute, assigning one if it is new.
func (s *slots) of(name string) int {
	n, ok := s.number[name]
	if !ok {
		n = len(s.names)
		s.names = append(s.names, name)
		s.number[name] = n
	}
	return n
}

// view is a request as a rule set evaluates it, in one reading at a time: values by slot, and paths split on first use. The zero
// value is empty.
type view struct {
	attributes Attributes
	hashed     Attributes // a copy with the hash of the API key
	values     []string
	paths      [2]segments // as given and in lower case
	split      [2]bool
	readings   readings
}

// load sets the request, in its primary reading.
func (v *view) load(set *RuleSet, a Attributes) {
	s := &set.slots
	a = hashKey(a, attrAPIKey, &v.hashed)
	v.attributes = a
	v.split = [2]bool{}
	if cap(v.values) < len(s.names) {
		v.values = make([]string, len(s.names))
	}
	v.values = v.values[:len(s.names)]
	if len(s.names) <= 4*len(a) {
		for i, name := range s.names {
			v.values[i] = a[name]
		}
	} else {
		for name, value := range a {
			if i, ok := s.number[name]; ok {
				v.values[i] = value
			}
		}
	}
	if i, ok := s.number[attrClient]; ok {
		_, v.values[i] = a.Client()
	}
	v.readings.collect(set, v.values)
}

// selectReading switches to a reading of the request, by the indexes of its path and method.
func (v *view) selectReading(path, method int) {
	if p := v.readings.paths[path]; p != v.values[slotPath] {
		v.values[slotPath] = p
		v.split = [2]bool{}
	}
	v.values[slotMethod] = v.readings.methods[method]
}

// readingAttributes returns the attributes with the path and method of the current reading.
func (v *view) readingAttributes() Attributes {
	if !v.readings.ambiguous() {
		return v.attributes
	}
	return v.readings.with(v.attributes, v.values[slotPath], v.values[slotMethod])
}

// path returns the segments of the path in the current reading, in lower case if lower is set.
func (v *view) path(lower bool) *segments {
	i := 0
	if lower {
		i = 1
	}
	if !v.split[i] {
		v.split[i] = true
		path := v.values[slotPath]
		if lower {
			path = foldCase(path)
		}
		v.paths[i].split(path)
	}
	return &v.paths[i]
}

// reset empties the view.
func (v *view) reset() {
	v.attributes = nil
	clear(v.hashed)
	clear(v.values)
	v.readings.reset()
}
