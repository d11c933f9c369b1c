package protofields_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/headgate/headgate/internal/protofields"
)

// enum is a descriptorpb.EnumValueDescriptorProto: a string, a number and a message.
type enum struct {
	name       string
	number     int32
	deprecated bool
}

func (e *enum) write(data []byte) []byte {
	data = protofields.AppendString(data, 1<<3|protofields.Bytes, e.name)
	data = protofields.AppendNumber(data, 2<<3, uint64(e.number))
	data, at := protofields.Open(data, 3<<3|protofields.Bytes)
	return protofields.Close(protofields.AppendBool(data, 1<<3, e.deprecated), at)
}

func (e *enum) read(r protofields.Reader) error {
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			e.name = r.Text()
		case 2 << 3:
			e.number = int32(r.Value)
		case 3<<3 | protofields.Bytes:
			inner := r.Message()
			for inner.Next() {
				if inner.Tag == 1<<3 {
					e.deprecated = inner.Value != 0
				}
			}
			if inner.Err != nil {
				return inner.Err
			}
		}
	}
	return r.Err
}

// TestSameAsGenerated tests that generated code decodes what this package encodes and vice versa, with copied strings and substrings.
func TestSameAsGenerated(t *testing.T) {
	t.Parallel()
	for _, want := range []enum{
		{},
		{name: "a"},
		{number: -1},
		{number: 1 << 30, deprecated: true},
		{strings.Repeat("ä", 63), 7, true},
		{strings.Repeat("ä", 64), 7, true},
		{strings.Repeat("x", 70_000), 7, true},
	} {
		data := want.write(nil)
		var m descriptorpb.EnumValueDescriptorProto
		if err := proto.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		if got := (enum{m.GetName(), m.GetNumber(), m.GetOptions().GetDeprecated()}); got != want {
			t.Errorf("%.100v is decoded as %.100v", want, got)
		}
		data, err := proto.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		for _, whole := range []string{"", string(data)} {
			var got enum
			if err := got.read(protofields.Reader{Rest: data, Whole: whole}); err != nil || got != want {
				t.Errorf("%.100v is decoded as %.100v: %v", want, got, err)
			}
		}
	}
}

// TestCloseMoves tests that the length of a nested message may take several bytes.
func TestCloseMoves(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 127, 128, 16_383, 16_384, 1 << 21} {
		content := bytes.Repeat([]byte{'x'}, n)
		data, at := protofields.Open([]byte("before"), 1<<3|protofields.Bytes)
		got := protofields.Close(append(data, content...), at)
		want := protowire.AppendBytes(protowire.AppendTag([]byte("before"), 1, protowire.BytesType), content)
		if !slices.Equal(got, want) {
			t.Errorf("%d bytes are encoded differently", n)
		}
	}
}

// TestZeroIsNotWritten tests that default values are omitted.
func TestZeroIsNotWritten(t *testing.T) {
	t.Parallel()
	data := protofields.AppendNumber(nil, 1<<3, 0)
	data = protofields.AppendBool(data, 2<<3, false)
	data = protofields.AppendString(data, 3<<3|protofields.Bytes, "")
	data = protofields.AppendBytes(data, 4<<3|protofields.Bytes, nil)
	if len(data) != 0 {
		t.Errorf("wrote %x", data)
	}
}

func TestTextIsUTF8(t *testing.T) {
	t.Parallel()
	data := protofields.AppendString(nil, 1<<3|protofields.Bytes, "\xff")
	data = protofields.AppendNumber(data, 2<<3, 7)
	var e enum
	if err := e.read(protofields.Reader{Rest: data}); err == nil || e.name != "" || e.number != 0 {
		t.Errorf("%v is decoded: %v", e, err)
	}
}

// fields lists the fields of a message.
func fields(data []byte) (string, error) {
	var list strings.Builder
	r := protofields.Reader{Rest: data}
	for r.Next() {
		fmt.Fprintf(&list, "%d: %d %x\n", r.Tag, r.Value, r.Bytes)
	}
	return list.String(), r.Err
}

// FuzzReader tests that a message has the same fields as in generated code, or is rejected by both.
func FuzzReader(f *testing.F) {
	f.Add((&enum{"name", 7, true}).write(nil))
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.StartGroupType), 1<<3|4))
	f.Add([]byte{0xe0, 0, 0x30}) // a tag in more bytes than necessary
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var empty emptypb.Empty
		rejected := proto.Unmarshal(data, &empty)
		read, err := fields(data)
		if (err == nil) != (rejected == nil) {
			t.Fatalf("%x: %v, want %v", data, err, rejected)
		}
		if kept, _ := fields(empty.ProtoReflect().GetUnknown()); err == nil && read != kept {
			t.Errorf("%x is decoded as %s, want %s", data, read, kept)
		}
		var got enum
		var m descriptorpb.EnumValueDescriptorProto
		err = got.read(protofields.Reader{Rest: data, Whole: string(data)})
		if denied := proto.Unmarshal(data, &m); err == nil && denied == nil &&
			got != (enum{m.GetName(), m.GetNumber(), m.GetOptions().GetDeprecated()}) {
			t.Errorf("%x is decoded as %v, want %v", data, got, &m)
		}
	})
}
