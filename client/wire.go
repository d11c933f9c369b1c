package client

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// The messages of CheckStream are read and written here rather than by the generated code: a map costs it some thirty
// allocations, and callers can do their own part of the work side by side. Tests hold both to the same.

// codec is how gRPC gets at the messages.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*outgoing)
	if !ok {
		return nil, fmt.Errorf("client: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.Copy(out.data, mem.DefaultBufferPool())}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return fmt.Errorf("client: cannot receive a %T", v)
	}
	in.data = slices.Grow(in.data[:0], data.Len())[:data.Len()]
	data.CopyTo(in.data)
	return in.parse()
}

// outgoing is a CheckStreamRequest.
type outgoing struct{ data []byte }

func (o *outgoing) append(id uint64, request []byte) {
	size := 1 + protowire.SizeVarint(id) + 1 + protowire.SizeBytes(len(request))
	o.data = protowire.AppendTag(o.data, 1, protowire.BytesType)
	o.data = protowire.AppendVarint(o.data, uint64(size))
	o.data = protowire.AppendTag(o.data, 1, protowire.VarintType)
	o.data = protowire.AppendVarint(o.data, id)
	o.data = protowire.AppendTag(o.data, 2, protowire.BytesType)
	o.data = protowire.AppendBytes(o.data, request)
}

// appendRequest writes a CheckRequest.
func appendRequest(data []byte, req *headgate.Request) []byte {
	for name, value := range req.Attributes {
		name, value = text(name), text(value)
		data = protowire.AppendTag(data, 1, protowire.BytesType)
		data = protowire.AppendVarint(data, uint64(2+protowire.SizeBytes(len(name))+protowire.SizeBytes(len(value))))
		data = protowire.AppendTag(data, 1, protowire.BytesType)
		data = protowire.AppendString(data, name)
		data = protowire.AppendTag(data, 2, protowire.BytesType)
		data = protowire.AppendString(data, value)
	}
	if req.Cost != 0 {
		data = protowire.AppendTag(data, 2, protowire.VarintType)
		data = protowire.AppendVarint(data, uint64(req.Cost))
	}
	if req.Rule != "" {
		data = protowire.AppendTag(data, 3, protowire.BytesType)
		data = protowire.AppendString(data, text(req.Rule))
	}
	return data
}

// text is a string as messages can have it. Somebody's header may hold any bytes, and servers end a stream over those
// that are no UTF-8: such a byte becomes U+FFFD and its two digits, so that values that differ still do.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		b.WriteRune(r)
		if r == utf8.RuneError && size == 1 {
			b.WriteString(hex.EncodeToString([]byte(s[:1])))
		}
		s = s[size:]
	}
	return b.String()
}

// incoming is a CheckStreamResponse. Everything in it is overwritten by the next.
type incoming struct {
	data     []byte
	answers  []answer
	rules    *checkv1.RuleInfo
	draining bool
}

// answer is a StreamAnswer.
type answer struct {
	id       uint64
	response []byte
	code     codes.Code
	message  string
	waiter   *waiter
}

func (in *incoming) parse() error {
	clear(in.answers)
	in.answers, in.rules, in.draining = in.answers[:0], nil, false
	return fields(in.data, func(number protowire.Number, n uint64, b []byte) error {
		switch number {
		case 1:
			var a answer
			if err := a.parse(b); err != nil {
				return err
			}
			in.answers = append(in.answers, a)
		case 2:
			in.rules = &checkv1.RuleInfo{}
			return proto.Unmarshal(b, in.rules)
		case 3:
			in.draining = n != 0
		}
		return nil
	})
}

func (a *answer) parse(data []byte) error {
	return fields(data, func(number protowire.Number, n uint64, b []byte) error {
		switch number {
		case 1:
			a.id = n
		case 2:
			a.response = b
		case 3:
			a.code = codes.Code(n)
		case 4:
			a.message = string(b)
		}
		return nil
	})
}

// fields calls one function for all fields of a message: with a number or with bytes, whichever it holds. What it does
// not know it must pass over.
func fields(data []byte, each func(number protowire.Number, n uint64, b []byte) error) error {
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[size:]
		var n uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(data)
		default:
			size = protowire.ConsumeFieldValue(number, kind, data)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := each(number, n, b); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}
