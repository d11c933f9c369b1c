package headgate

import "strings"

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

// view is one request as a rule set looks at it: values by slot, paths taken apart when first asked for. It begins empty.
type view struct {
	attributes Attributes
	values     []string
	paths      [4]segments // as given and in lower case, of both readings
	split      [4]bool
}

func (v *view) look(s *slots, a Attributes) {
	a = hashKeys(a)
	v.attributes = a
	v.split = [4]bool{}
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
}

func (v *view) path(lower bool) *segments      { return v.segments(0, slotPath, lower) }
func (v *view) otherPath(lower bool) *segments { return v.segments(2, slotOtherPath, lower) }

func (v *view) segments(i, slot int, lower bool) *segments {
	path := v.values[slot]
	if lower {
		i++
		if !v.split[i] {
			path = strings.ToLower(path)
		}
	}
	if !v.split[i] {
		v.split[i] = true
		v.paths[i].split(path)
	}
	return &v.paths[i]
}

// forget makes the view empty again.
func (v *view) forget() {
	v.attributes = nil
	clear(v.values)
}
