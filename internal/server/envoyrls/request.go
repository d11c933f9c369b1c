package envoyrls

import "github.com/headgate/headgate/internal/protofields"

// request is envoy.service.ratelimit.v3.RateLimitRequest.
type request struct {
	domain      string
	descriptors []descriptor
	hits        uint64
	err         error // what is wrong with its bytes
	room        [3]descriptor
}

// descriptor is envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.
type descriptor struct {
	entries  []entry
	hits     uint64
	hasHits  bool // 0 is a number, too
	negative bool
	limit    override
}

// override is the limit that a descriptor asks for.
type override struct {
	given       bool
	requests    uint64
	unit, times uint64
}

type entry struct{ key, value string }

// ReadFields never fails: what is wrong is for the handler to say, in words that a caller understands.
func (m *request) ReadFields(data []byte) error {
	*m = request{}
	m.descriptors = m.room[:0]
	r := protofields.Reader{Rest: data, Whole: string(data)}
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			m.domain = r.Text()
		case 2<<3 | protofields.Bytes:
			if len(m.descriptors) <= maxDescriptors { // one more is enough to deny it
				m.descriptors = append(m.descriptors, descriptor{})
				m.readDescriptor(&m.descriptors[len(m.descriptors)-1], r.Message())
			}
		case 3 << 3:
			m.hits = uint64(uint32(r.Value)) // it is one of 32 bits
		}
	}
	m.note(r.Err)
	return nil
}

func (m *request) readDescriptor(d *descriptor, r protofields.Reader) {
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			if len(d.entries) <= maxEntries {
				d.entries = append(d.entries, m.readEntry(r.Message()))
			}
		case 2<<3 | protofields.Bytes:
			d.limit = m.readOverride(r.Message())
		case 3<<3 | protofields.Bytes:
			d.hasHits, d.hits = true, m.readWrapped(r.Message())
		case 4 << 3:
			d.negative = r.Value != 0
		}
	}
	m.note(r.Err)
}

func (m *request) readOverride(r protofields.Reader) override {
	o := override{given: true}
	for r.Next() {
		switch r.Tag {
		case 1 << 3:
			o.requests = uint64(uint32(r.Value))
		case 2 << 3:
			o.unit = r.Value
		case 3<<3 | protofields.Bytes:
			o.times = m.readWrapped(r.Message())
		}
	}
	m.note(r.Err)
	return o
}

// readWrapped reads a number that may be absent: a UInt64Value or UInt32Value.
func (m *request) readWrapped(r protofields.Reader) (n uint64) {
	for r.Next() {
		if r.Tag == 1<<3 {
			n = r.Value
		}
	}
	m.note(r.Err)
	return n
}

func (m *request) readEntry(r protofields.Reader) (e entry) {
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			e.key = r.Text()
		case 2<<3 | protofields.Bytes:
			e.value = r.Text()
		}
	}
	m.note(r.Err)
	return e
}

func (m *request) note(err error) {
	if m.err == nil {
		m.err = err
	}
}
