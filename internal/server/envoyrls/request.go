package envoyrls

import "github.com/headgate/headgate/internal/protofields"

// request is envoy.service.ratelimit.v3.RateLimitRequest.
type request struct {
	domain      string
	descriptors []descriptor
	hits        uint64
	err         error // of decoding
	buffer      [3]descriptor
}

// descriptor is envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.
type descriptor struct {
	entries  []entry
	hits     uint64
	hasHits  bool // distinguishes 0 from absent
	negative bool
	limit    override
}

// override is the limit that a descriptor requests.
type override struct {
	given       bool
	requests    uint64
	unit, times uint64
}

type entry struct{ key, value string }

// ReadFields decodes the request. It never fails: the handler reports decoding errors in a way that a caller understands.
func (m *request) ReadFields(data []byte) error {
	*m = request{}
	m.descriptors = m.buffer[:0]
	r := protofields.Reader{Rest: data, Whole: string(data)}
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			m.domain = r.Text()
		case 2<<3 | protofields.Bytes:
			if len(m.descriptors) <= maxDescriptors { // one more is enough to reject it
				m.descriptors = append(m.descriptors, descriptor{})
				m.readDescriptor(&m.descriptors[len(m.descriptors)-1], r.Message())
			}
		case 3 << 3:
			m.hits = uint64(uint32(r.Value)) // the field has 32 bits
		}
	}
	m.setError(r.Err)
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
	m.setError(r.Err)
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
	m.setError(r.Err)
	return o
}

// readWrapped reads an optional number: a UInt64Value or UInt32Value.
func (m *request) readWrapped(r protofields.Reader) (n uint64) {
	for r.Next() {
		if r.Tag == 1<<3 {
			n = r.Value
		}
	}
	m.setError(r.Err)
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
	m.setError(r.Err)
	return e
}

func (m *request) setError(err error) {
	if m.err == nil {
		m.err = err
	}
}
