// Package protofields encodes and decodes Protocol Buffers field by field, for the few messages in the path of every check: there
// the generated code takes longer than the decision. It knows the encoding, but no messages.
package protofields

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Tag is the encoded number and wire type of a field: number<<3 for a varint, number<<3|Bytes for bytes. A field with an unexpected
// wire type counts as unknown.
type Tag uint64

// Bytes is the wire type of strings, bytes and messages.
const Bytes = Tag(protowire.BytesType)

// Readable is a message that decodes itself.
type Readable interface {
	ReadFields(data []byte) error
}

// Writable is a message that encodes itself.
type Writable interface {
	AppendFields(data []byte) []byte
}

// Reader iterates over the fields of a message:
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
// The caller must ignore unknown tags.
type Reader struct {
	// Rest is the unread part of the message.
	Rest []byte
	// Whole is the message as a string. If it is set, Text returns substrings of it instead of copies.
	Whole string
	// Tag is the tag of the current field. Value or Bytes is its content.
	Tag   Tag
	Value uint64
	Bytes []byte
	// Err is the error that ended the iteration, or nil at the end of the message.
	Err error
}

// Next reads the next field. It returns false at the end of the message or after an error.
func (r *Reader) Next() bool {
	if len(r.Rest) == 0 {
		return false
	}
	number, kind, size := protowire.ConsumeTag(r.Rest)
	switch {
	case size < 0:
		return r.fail(protowire.ParseError(size))
	case number > protowire.MaxValidNumber: // like generated code
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

// Text returns the bytes of the field as a string. If they are not valid UTF-8, it sets Err and ends the iteration, like generated
// code.
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

// part returns the bytes of the field as a substring of Whole.
func (r *Reader) part() string {
	end := len(r.Whole) - len(r.Rest)
	return r.Whole[end-len(r.Bytes) : end]
}

var (
	errNumber = errors.New("field number too large")
	errText   = errors.New("string is not valid UTF-8")
)

// fail ends the iteration with an error.
func (r *Reader) fail(err error) bool {
	r.Rest, r.Err = nil, err
	return false
}

// AppendNumber appends a number, unless it is 0, the default of a field.
func AppendNumber(data []byte, tag Tag, n uint64) []byte {
	if n == 0 {
		return data
	}
	return protowire.AppendVarint(protowire.AppendVarint(data, uint64(tag)), n)
}

// AppendBool appends a bool, unless it is false.
func AppendBool(data []byte, tag Tag, b bool) []byte {
	if !b {
		return data
	}
	return AppendNumber(data, tag, 1)
}

// AppendString appends a string, unless it is empty.
func AppendString(data []byte, tag Tag, s string) []byte {
	if s == "" {
		return data
	}
	return protowire.AppendString(protowire.AppendVarint(data, uint64(tag)), s)
}

// AppendBytes appends bytes, unless they are empty.
func AppendBytes(data []byte, tag Tag, b []byte) []byte {
	if len(b) == 0 {
		return data
	}
	return protowire.AppendBytes(protowire.AppendVarint(data, uint64(tag)), b)
}

// Open begins a nested message. at is its start, which the caller passes to Close.
func Open(data []byte, tag Tag) (grown []byte, at int) {
	data = append(protowire.AppendVarint(data, uint64(tag)), 0)
	return data, len(data)
}

// Close ends the nested message that starts at at, and writes its length. A message of 128 bytes or more is moved to make space.
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
