package checkgrpc

import (
	"bytes"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // for all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/protofields"
	"github.com/headgate/headgate/internal/server/check"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// Codec returns the codec of a server, for grpc.ForceServerCodecV2. It decodes messages with attributes by hand, and of an
// oversized request only as many attributes as it takes to reject it. Messages that implement protofields.Readable or
// Writable encode themselves, and all others use the default codec. The wire format is the same.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case protofields.Writable:
		return mem.BufferSlice{mem.SliceBuffer(m.AppendFields(make([]byte, 0, 256)))}, nil
	case *checkv1.CheckResponse:
		return mem.BufferSlice{mem.SliceBuffer(appendResponse(make([]byte, 0, sizeGuess(m)), m))}, nil
	case *checkv1.CheckStreamResponse:
		if m.GetRules() == nil { // rare
			return mem.BufferSlice{mem.SliceBuffer(appendResults(m))}, nil
		}
	}
	if m, ok := v.(proto.Message); ok {
		// For messages over 32 kB, such as the response to a batch, the codec of gRPC allocates 1 MB until the caller reads
		// the message.
		data, err := proto.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(data)}, err
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case protofields.Readable:
		return m.ReadFields(data.Materialize())
	case *checkv1.CheckRequest:
		m.Reset()
		return readRequest(data.Materialize(), m)
	case *checkv1.ReserveRequest:
		m.Reset()
		return readReserve(data.Materialize(), m)
	case *checkv1.ExtendRequest:
		m.Reset()
		return readExtend(data.Materialize(), m)
	case *checkv1.CommitRequest:
		m.Reset()
		return readCommit(data.Materialize(), m)
	}
	return c.CodecV2.Unmarshal(data, v)
}

func readRequest(data []byte, m *checkv1.CheckRequest) error {
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			var err error
			if m.Attributes, err = readAttribute(r.Bytes, m.Attributes); err != nil {
				return err
			}
		case 2 << 3:
			m.Cost = int64(r.Value)
		case 3<<3 | protofields.Bytes:
			m.Rule = r.Text()
		case 4<<3 | protofields.Bytes:
			m.Traceparent = r.Text()
		case 5 << 3:
			m.WithHeaders = r.Value != 0
		case 6 << 3:
			m.Begin = r.Value != 0
		}
	}
	return r.Err
}

// readReserve reads a ReserveRequest. A repeated field is merged, as usual in Protocol Buffers.
func readReserve(data []byte, m *checkv1.ReserveRequest) error {
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			if err := mergeRequest(r.Bytes, &m.Request); err != nil {
				return err
			}
		case 2 << 3:
			m.HoldUs = int64(r.Value)
		}
	}
	return r.Err
}

func readExtend(data []byte, m *checkv1.ExtendRequest) error {
	r := protofields.Reader{Rest: data}
	for r.Next() {
		var err error
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			m.Reservation = bytes.Clone(r.Bytes)
		case 2<<3 | protofields.Bytes:
			err = mergeRequest(r.Bytes, &m.Used)
		case 3<<3 | protofields.Bytes:
			err = mergeRequest(r.Bytes, &m.Expected)
		case 4 << 3:
			m.HoldUs = int64(r.Value)
		}
		if err != nil {
			return err
		}
	}
	return r.Err
}

// mergeRequest reads a request into a field.
func mergeRequest(data []byte, into **checkv1.CheckRequest) error {
	if *into == nil {
		*into = &checkv1.CheckRequest{}
	}
	return readRequest(data, *into)
}

func readCommit(data []byte, m *checkv1.CommitRequest) error {
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			m.Reservation = bytes.Clone(r.Bytes)
		case 2 << 3:
			m.Cost = int64(r.Value)
		case 3<<3 | protofields.Bytes:
			var err error
			if m.Attributes, err = readAttribute(r.Bytes, m.GetAttributes()); err != nil {
				return err
			}
		}
	}
	return r.Err
}

// readAttribute adds an attribute, unless the request already has more than allowed: one more is enough to reject it.
func readAttribute(data []byte, attributes map[string]string) (map[string]string, error) {
	if len(attributes) > check.MaxAttributes {
		return attributes, nil
	}
	name, value, err := readPair(data)
	if err != nil {
		return nil, err
	}
	if attributes == nil {
		attributes = make(map[string]string, 4)
	}
	attributes[name] = value
	return attributes, nil
}

func readPair(data []byte) (name, value string, err error) {
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			name = r.Text()
		case 2<<3 | protofields.Bytes:
			value = r.Text()
		}
	}
	return name, value, r.Err
}

// sizeGuess returns the size of a typical response with as many limits and headers.
func sizeGuess(m *checkv1.CheckResponse) int {
	return 64 + 96*len(m.GetLimits()) + 48*len(m.GetHeaders())
}

func appendResults(m *checkv1.CheckStreamResponse) []byte {
	size := 16
	for _, a := range m.GetAnswers() {
		size += 16 + sizeGuess(a.GetResponse())
	}
	data := make([]byte, 0, size)
	for _, a := range m.GetAnswers() {
		var at int
		data, at = protofields.Open(data, 1<<3|protofields.Bytes)
		data = protofields.AppendNumber(data, 1<<3, a.GetId())
		if r := a.GetResponse(); r != nil {
			var inner int
			data, inner = protofields.Open(data, 2<<3|protofields.Bytes)
			data = protofields.Close(appendResponse(data, r), inner)
		}
		data = protofields.AppendNumber(data, 3<<3, uint64(a.GetCode()))
		data = protofields.AppendString(data, 4<<3|protofields.Bytes, a.GetMessage())
		data = protofields.Close(data, at)
	}
	return protofields.AppendBool(data, 3<<3, m.GetDraining())
}

func appendResponse(data []byte, m *checkv1.CheckResponse) []byte {
	data = protofields.AppendBool(data, 1<<3, m.GetAllowed())
	data = protofields.AppendNumber(data, 2<<3, uint64(m.GetRetryAfterUs()))
	data = protofields.AppendNumber(data, 3<<3, uint64(m.GetDelayUs()))
	data = protofields.AppendString(data, 4<<3|protofields.Bytes, m.GetPath())
	data = protofields.AppendString(data, 5<<3|protofields.Bytes, m.GetVersion())
	data = protofields.AppendNumber(data, 6<<3, uint64(m.GetTimeUs()))
	for _, l := range m.GetLimits() {
		var at int
		data, at = protofields.Open(data, 7<<3|protofields.Bytes)
		data = protofields.Close(appendLimit(data, l), at)
	}
	data = protofields.AppendNumber(data, 8<<3, uint64(m.GetRemaining()))
	data = protofields.AppendNumber(data, 9<<3, uint64(m.GetResetUs()))
	for name, value := range m.GetHeaders() {
		var at int
		data, at = protofields.Open(data, 10<<3|protofields.Bytes)
		data = protofields.AppendString(data, 1<<3|protofields.Bytes, name)
		data = protofields.Close(protofields.AppendString(data, 2<<3|protofields.Bytes, value), at)
	}
	data = protofields.AppendBytes(data, 11<<3|protofields.Bytes, m.GetSlots())
	data = protofields.AppendNumber(data, 12<<3, uint64(m.GetLeaseUs()))
	for _, rule := range m.GetSkipped() {
		data = protofields.AppendString(data, 13<<3|protofields.Bytes, rule)
	}
	return data
}

func appendLimit(data []byte, l *checkv1.LimitStatus) []byte {
	data = protofields.AppendString(data, 1<<3|protofields.Bytes, l.GetRule())
	data = protofields.AppendString(data, 2<<3|protofields.Bytes, l.GetName())
	for i, b := range [...]bool{l.GetAllowed(), l.GetEnforced(), l.GetExposed()} {
		data = protofields.AppendBool(data, protofields.Tag((3+i)<<3), b)
	}
	for i, n := range [...]int64{
		l.GetCost(), l.GetRemaining(), l.GetRetryAfterUs(), l.GetResetAfterUs(), l.GetDelayUs(), int64(l.GetAlgorithm()),
		l.GetCount(), l.GetWindowUs(), l.GetBurst(), int64(l.GetOrigin()),
	} {
		data = protofields.AppendNumber(data, protofields.Tag((6+i)<<3), uint64(n))
	}
	data = protofields.AppendString(data, 16<<3|protofields.Bytes, l.GetMissing())
	data = protofields.AppendBool(data, 17<<3, l.GetFailed())
	return protofields.AppendNumber(data, 18<<3, uint64(l.GetGranted()))
}
