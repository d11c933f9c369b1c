package checkgrpc

import (
	"fmt"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/protofields"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// list is a message whose items in field 1 are decoded one by one, such as a CheckStreamRequest: a decoded item takes up to a
// hundred times the memory of its bytes. A CheckStreamRequest has releases in field 2.
type list struct {
	data []byte
	n    int // items
	err  error
}

// ReadFields counts the items. It never fails: gRPC would report an internal error, while the handler can report a precise one.
func (l *list) ReadFields(data []byte) error {
	*l = list{data: data}
	r := protofields.Reader{Rest: data}
	for r.Next() {
		if r.Tag == 1<<3|protofields.Bytes {
			l.n++
		}
	}
	l.err = r.Err
	return nil
}

// items returns the bytes of each item.
func (l *list) items() iter.Seq[[]byte] { return l.field(1<<3 | protofields.Bytes) }

// releases returns the bytes of each release.
func (l *list) releases() iter.Seq[[]byte] { return l.field(2<<3 | protofields.Bytes) }

func (l *list) field(tag protofields.Tag) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for r := (protofields.Reader{Rest: l.data}); r.Next(); {
			if r.Tag == tag && !yield(r.Bytes) {
				return
			}
		}
	}
}

// validate checks the message as a whole. what names the items and remedy is appended to the message.
func (l *list) validate(what string, limit int, remedy string) error {
	switch {
	case l.err != nil:
		return unreadable(l.err)
	case l.n > limit:
		return status.Errorf(codes.InvalidArgument, "%d %s: send at most %d at a time%s", l.n, what, limit, remedy)
	}
	return nil
}

func unreadable(err error) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf("cannot decode the message: %v", err))
}

// readCheck decodes one check of a stream.
func readCheck(data []byte) (*checkv1.StreamCheck, error) {
	decoded := &struct {
		check   checkv1.StreamCheck
		request checkv1.CheckRequest
	}{}
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch r.Tag {
		case 1 << 3:
			decoded.check.Id = r.Value
		case 2<<3 | protofields.Bytes:
			decoded.check.Request = &decoded.request
			if err := readRequest(r.Bytes, &decoded.request); err != nil {
				return nil, err
			}
		}
	}
	return &decoded.check, r.Err
}
