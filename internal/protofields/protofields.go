// Package protofields reads and writes Protocol Buffers field by field, for the few messages that are on the path of every
// check: there the generated code spends more than the decision takes. It knows the encoding, and no message.
package protofields

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Tag is a field's number and kind, as they are on the wire: number<<3 for one with a number, number<<3|Bytes for one with
// bytes. A field of another kind than a message expects is a field that it does not know.
type Tag uint64

// Bytes is the kind of strings, bytes and messages.
const Bytes = Tag(protowire.BytesType)

// Readable is a message that reads itself.
type Readable interface {
	ReadFields(data []byte) error
}

// Writable is a message that writes itself.
type Writable interface {
	AppendFields(data []byte) []byte
}

// Reader goes through the fields of a message:
//
//	r := protofields.Reader{Rest: data}
//	for r.Next() {
//		switch r.Tag {
//		case 1 << 3:
//			id = r.Value
//		}
//	}
//	return r.Err
//
// What the caller does not know it must pass over.
type Reader struct {
	// Rest is what is left of the message.
	Rest []byte
	// Whole is the message as a string, if the texts are to be parts of it; "" copies each.
	Whole string
	// Tag of the field, and the number or the bytes that it holds.
	Tag   Tag
	Value uint64
	Bytes []byte
	// Err is why there are no more fields, if that is not the end.
	Err error
}

// Next reads a field. It is false if there is none.
func (r *Reader) Next() bool {
	if len(r.Rest) == 0 {
		return false
	}
	number, kind, size := protowire.ConsumeTag(r.Rest)
	switch {
	case size < 0:
		return r.fail(protowire.ParseError(size))
	case number > protowire.MaxValidNumber: // as generated code has it
		return r.fail(errNumber)
	}
	r.Rest = r.Rest[size:]
	r.Tag, r.Value, r.Bytes = Tag(protowire.EncodeTag(number, kind)), 0, nil
	switch kind {
	case protowire.VarintType:
		r.Value, size = protowire.ConsumeVarint(r.Rest)
	case protowire.BytesType:
		r.Bytes, size = protowire.ConsumeBytes(r.Rest)
	default:
		size = protowire.ConsumeFieldValue(number, kind, r.Rest)
	}
	if size < 0 {
		return r.fail(protowire.ParseError(size))
	}
	r.Rest = r.Rest[size:]
	return true
}

// Text returns the bytes of the field as a string. If they are not UTF-8 there are no more fields, as generated code has it.
func (r *Reader) Text() string {
	if !utf8.Valid(r.Bytes) {
		r.fail(errText)
		return ""
	}
	if r.Whole == "" {
		return string(r.Bytes)
	}
	return r.part()
}

// Message returns a reader of the message in the field.
func (r *Reader) Message() Reader {
	if r.Whole == "" {
		return Reader{Rest: r.Bytes}
	}
	return Reader{Rest: r.Bytes, Whole: r.part()}
}

// part returns the bytes of the field as a part of the Whole.
func (r *Reader) part() string {
	end := len(r.Whole) - len(r.Rest)
	return r.Whole[end-len(r.Bytes) : end]
}

var (
	errNumber = errors.New("a field's number is too large")
	errText   = errors.New("a text is not UTF-8")
)

func (r *Reader) fail(err error) bool {
	r.Rest, r.Err = nil, err
	return false
}

// AppendNumber writes a number, but for 0, which a field has anyway.
func AppendNumber(data []byte, tag Tag, n uint64) []byte {
	if n == 0 {
		return data
	}
	return protowire.AppendVarint(protowire.AppendVarint(data, uint64(tag)), n)
}

// AppendBool writes a number that is true or false.
func AppendBool(data []byte, tag Tag, b bool) []byte {
	if !b {
		return data
	}
	return AppendNumber(data, tag, 1)
}

// AppendString writes a string, but for "".
func AppendString(data []byte, tag Tag, s string) []byte {
	if s == "" {
		return data
	}
	return protowire.AppendString(protowire.AppendVarint(data, uint64(tag)), s)
}

// AppendBytes writes bytes, but for none.
func AppendBytes(data []byte, tag Tag, b []byte) []byte {
	if len(b) == 0 {
		return data
	}
	return protowire.AppendBytes(protowire.AppendVarint(data, uint64(tag)), b)
}

// Open begins a message within a message, and Close ends it.
func Open(data []byte, tag Tag) (grown []byte, at int) {
	data = append(protowire.AppendVarint(data, uint64(tag)), 0)
	return data, len(data)
}

// Close writes how long the message is that began at a place: most are short, and the others are moved.
func Close(data []byte, at int) []byte {
	n := len(data) - at
	if n < 0x80 {
		data[at-1] = byte(n)
		return data
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	for range more {
		data = append(data, 0)
	}
	copy(data[at+more:], data[at:at+n])
	protowire.AppendVarint(data[:at-1], uint64(n))
	return data
}
