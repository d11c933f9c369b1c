package client

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/protofields"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// Messages are encoded and decoded here instead of by the generated code, which needs about thirty allocations for a map, and so that
// callers encode and decode in parallel. Tests compare both implementations.

// codec passes encoded messages to and from gRPC.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*raw)
	if !ok {
		return nil, fmt.Errorf("client: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.Copy(out.data, mem.DefaultBufferPool())}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch in := v.(type) {
	case *raw:
		in.data = data.Materialize()
		return nil
	case *incoming:
		in.data = slices.Grow(in.data[:0], data.Len())[:data.Len()]
		data.CopyTo(in.data)
		return in.parse()
	}
	return fmt.Errorf("client: cannot receive a %T", v)
}

// raw is an encoded message.
type raw struct{ data []byte }

// append adds a check to a CheckStreamRequest.
func (o *raw) append(id uint64, request []byte) {
	data, at := protofields.Open(o.data, 1<<3|protofields.Bytes)
	data = protofields.AppendNumber(data, 1<<3, id)
	data, inner := protofields.Open(data, 2<<3|protofields.Bytes)
	data = protofields.Close(append(data, request...), inner)
	o.data = protofields.Close(data, at)
}

// appendRequest appends a CheckRequest.
func appendRequest(data []byte, req *headgate.Request, traceparent string) []byte {
	data = appendAttributes(data, 1<<3|protofields.Bytes, req.Attributes)
	data = protofields.AppendNumber(data, 2<<3, uint64(req.Cost))
	data = protofields.AppendString(data, 3<<3|protofields.Bytes, text(req.Rule))
	return protofields.AppendString(data, 4<<3|protofields.Bytes, text(traceparent))
}

// appendAttributes appends a map of attributes. It sends an API key as api_key_hash: package identity already hashes keys, and servers
// would hash an api_key again.
func appendAttributes(data []byte, tag protofields.Tag, attributes headgate.Attributes) []byte {
	for name, value := range attributes {
		if name == "api_key" && value != "" {
			name, value = "api_key_hash", headgate.EnsureKeyHash(value)
		}
		var at int
		data, at = protofields.Open(data, tag)
		data = protofields.AppendString(data, 1<<3|protofields.Bytes, text(name))
		data = protofields.AppendString(data, 2<<3|protofields.Bytes, text(value))
		data = protofields.Close(data, at)
	}
	return data
}

// text returns a string as valid UTF-8. A client's header may contain any bytes, and invalid UTF-8 would end the stream. An invalid
// byte is replaced by U+FFFD and its two hex digits, so that different values stay different.
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

// incoming is a decoded CheckStreamResponse. The next message overwrites it.
type incoming struct {
	data     []byte
	replies  []reply
	rules    *checkv1.RuleInfo
	draining bool
}

// reply is a decoded StreamAnswer.
type reply struct {
	id       uint64
	response []byte
	code     codes.Code
	message  string
	waiter   *waiter
}

// parse decodes data.
func (in *incoming) parse() error {
	clear(in.replies)
	in.replies, in.rules, in.draining = in.replies[:0], nil, false
	r := protofields.Reader{Rest: in.data}
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			var one reply
			if err := one.parse(r.Bytes); err != nil {
				return err
			}
			in.replies = append(in.replies, one)
		case 2<<3 | protofields.Bytes:
			in.rules = &checkv1.RuleInfo{}
			if err := proto.Unmarshal(r.Bytes, in.rules); err != nil {
				return err
			}
		case 3 << 3:
			in.draining = r.Value != 0
		}
	}
	return r.Err
}

// parse decodes a StreamAnswer.
func (a *reply) parse(data []byte) error {
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch r.Tag {
		case 1 << 3:
			a.id = r.Value
		case 2<<3 | protofields.Bytes:
			a.response = r.Bytes
		case 3 << 3:
			a.code = codes.Code(r.Value)
		case 4<<3 | protofields.Bytes:
			a.message = string(r.Bytes)
		}
	}
	return r.Err
}
