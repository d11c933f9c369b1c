package headgate

// Slots that every rule set has. The rest are the other attributes that its rules ask for.
const (
	slotPath = iota
	slotOtherPath
	slotMethod
	slotOtherMethod
	slotTier
	fixedSlots
)

// slots gives each attribute that rules ask for a number.
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

func (s *slots) of(name string) int {
	n, ok := s.number[name]
	if !ok {
		n = len(s.names)
		s.names = append(s.names, name)
		s.number[name] = n
	}
	return n
}

// view is one request as a rule set looks at it, in one of its readings at a time: values by slot, paths taken apart when
// first asked for. It begins empty.
type view struct {
	attributes Attributes
	hashed     Attributes // a copy with the hash of the API key
	values     []string
	paths      [2]segments // as given and in lower case
	split      [2]bool
	readings   readings
}

// look takes a request, in its first reading.
func (v *view) look(set *RuleSet, a Attributes) {
	s := &set.slots
	clear(v.hashed)
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

// read goes on to another reading of the same request.
func (v *view) read(path, method int) {
	if p := v.readings.paths[path]; p != v.values[slotPath] {
		v.values[slotPath] = p
		v.split = [2]bool{}
	}
	v.values[slotMethod] = v.readings.methods[method]
}

// inReading is the attributes in the present reading.
func (v *view) inReading() Attributes {
	if !v.readings.ambiguous() {
		return v.attributes
	}
	return v.readings.with(v.attributes, v.values[slotPath], v.values[slotMethod])
}

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

// forget makes the view empty again.
func (v *view) forget() {
	v.attributes = nil
	clear(v.hashed)
	clear(v.values)
	v.readings.forget()
}
