package checkgrpc

import (
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headgate/headgate/internal/server/check"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

func samples() []proto.Message {
	long := make([]byte, 200)
	for i := range long {
		long[i] = 'a' + byte(i%26)
	}
	request := &checkv1.CheckRequest{
		Attributes: map[string]string{"path": "/ä", "": "", "user": string(long)}, Cost: 7, Rule: "one",
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", WithHeaders: true, Begin: true,
	}
	limits := []*checkv1.LimitStatus{
		{}, {
			Rule: "one", Name: "peak", Allowed: true, Enforced: true, Exposed: true, Cost: 1, Remaining: 2, RetryAfterUs: -1,
			ResetAfterUs: 4, DelayUs: 5, Algorithm: checkv1.Algorithm_ALGORITHM_SLIDING_LOG, Count: 7, WindowUs: 1 << 40, Burst: 9,
			Origin: checkv1.Origin_ORIGIN_CANDIDATE, Missing: string(long), Failed: true, Granted: 18,
		},
	}
	response := &checkv1.CheckResponse{
		Allowed: true, RetryAfterUs: 1, DelayUs: 2, Path: "store", Version: "v", TimeUs: 1 << 50, Limits: limits,
		Remaining: -1, ResetUs: 1 << 51, Headers: map[string]string{"RateLimit": `"one";r=0`, "Retry-After": string(long)},
		Slots: long, LeaseUs: 1 << 30, Skipped: []string{"one", string(long)},
	}
	return []proto.Message{
		&checkv1.CheckRequest{}, request, &checkv1.CheckResponse{}, response,
		&checkv1.CheckStreamRequest{Checks: []*checkv1.StreamCheck{{}, {Id: 1 << 60, Request: request}, {Id: 2, Request: &checkv1.CheckRequest{}}}},
		&checkv1.CheckStreamRequest{Releases: []*checkv1.SlotRelease{{}, {Slots: long, DurationUs: -1, Status: -2, Cancelled: true}}},
		&checkv1.CheckStreamResponse{Draining: true},
		&checkv1.CheckStreamResponse{Rules: &checkv1.RuleInfo{Version: "v", Attributes: []string{"ip"}}, Draining: true},
		&checkv1.CheckStreamResponse{Answers: []*checkv1.StreamAnswer{
			{}, {Id: 3, Response: response}, {Id: 4, Code: 5, Message: "no"}, {Id: 5, Response: &checkv1.CheckResponse{}},
		}},
		&checkv1.ReserveRequest{Request: request, HoldUs: 3}, &checkv1.ReserveRequest{},
		&checkv1.ExtendRequest{Reservation: long, Used: &checkv1.CheckRequest{Cost: 7}, Expected: request, HoldUs: 3}, &checkv1.ExtendRequest{},
		&checkv1.CommitRequest{Reservation: long, Cost: 3, Attributes: map[string]string{"a": "b"}}, &checkv1.CommitRequest{},
	}
}

// TestCodec checks that the codec and the generated code read each other's output.
func TestCodec(t *testing.T) {
	t.Parallel()
	for _, m := range samples() {
		data, err := Codec().Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(data.Materialize(), got); err != nil || !proto.Equal(m, got) {
			t.Errorf("wrote %v\nread  %v: %v", m, got, err)
		}
		written, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got = m.ProtoReflect().New().Interface()
		if err := read(written, got); err != nil || !proto.Equal(m, got) {
			t.Errorf("wrote %v\nread  %v: %v", m, got, err)
		}
	}
}

// TestCodecHasAllFields checks that the samples, and so TestCodec, cover every field of the messages.
func TestCodecHasAllFields(t *testing.T) {
	t.Parallel()
	for _, m := range []proto.Message{
		&checkv1.CheckResponse{}, &checkv1.LimitStatus{}, &checkv1.StreamAnswer{}, &checkv1.CheckRequest{},
		&checkv1.ReserveRequest{}, &checkv1.ExtendRequest{}, &checkv1.CommitRequest{}, &checkv1.StreamCheck{}, &checkv1.SlotRelease{},
	} {
		seen := map[protoreflect.FieldNumber]bool{}
		for _, sample := range samples() {
			collect(sample.ProtoReflect(), m.ProtoReflect().Descriptor().FullName(), seen)
		}
		if all := m.ProtoReflect().Descriptor().Fields().Len(); len(seen) != all {
			t.Errorf("%s has %d fields, the samples have %d of them: add them to samples, and to the codec",
				m.ProtoReflect().Descriptor().Name(), all, len(seen))
		}
	}
}

// collect records the fields that are set in messages of a name, at any depth.
func collect(m protoreflect.Message, name protoreflect.FullName, seen map[protoreflect.FieldNumber]bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if m.Descriptor().FullName() == name {
			seen[f.Number()] = true
		}
		switch {
		case f.IsMap() || f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			for i := range v.List().Len() {
				collect(v.List().Get(i).Message(), name, seen)
			}
		default:
			collect(v.Message(), name, seen)
		}
		return true
	})
}

// FuzzCodec checks that every input is read or rejected as by the generated code. A request over the bounds must only be
// recognizable as such.
func FuzzCodec(f *testing.F) {
	for _, m := range samples() {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, empty := range []proto.Message{
			&checkv1.CheckRequest{}, &checkv1.CheckStreamRequest{}, &checkv1.ReserveRequest{}, &checkv1.ExtendRequest{}, &checkv1.CommitRequest{},
		} {
			want, got := empty.ProtoReflect().New().Interface(), empty.ProtoReflect().New().Interface()
			wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, want)
			err := read(data, got)
			if err == nil && maxAttributes(got) > check.MaxAttributes {
				continue
			}
			if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(want, got) {
				t.Errorf("%x:\nread %v: %v\nnot  %v: %v", data, got, err, want, wantErr)
			}
		}
	})
}

// read decodes a message as a server does.
func read(data []byte, m proto.Message) error {
	checks, ok := m.(*checkv1.CheckStreamRequest)
	if !ok {
		return Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, m)
	}
	var message list
	if err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, &message); err != nil {
		return err
	}
	for item := range message.items() {
		check, err := readCheck(item)
		if err != nil {
			return err
		}
		checks.Checks = append(checks.Checks, check)
	}
	for item := range message.releases() {
		release, err := readRelease(item)
		if err != nil {
			return err
		}
		checks.Releases = append(checks.Releases, release)
	}
	return message.err
}

// maxAttributes returns the largest number of attributes of a request in a message.
func maxAttributes(m proto.Message) (n int) {
	switch m := m.(type) {
	case *checkv1.CheckRequest:
		return len(m.GetAttributes())
	case *checkv1.ReserveRequest:
		return maxAttributes(m.GetRequest())
	case *checkv1.ExtendRequest:
		return max(maxAttributes(m.GetUsed()), maxAttributes(m.GetExpected()))
	case *checkv1.CommitRequest:
		return len(m.GetAttributes())
	case *checkv1.CheckStreamRequest:
		for _, check := range m.GetChecks() {
			n = max(n, maxAttributes(check.GetRequest()))
		}
	}
	return n
}

func BenchmarkCodec(b *testing.B) {
	all := samples()
	request, results := all[1], all[8]
	data, err := proto.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	buffers := mem.BufferSlice{mem.SliceBuffer(data)}
	for name, c := range map[string]interface {
		Marshal(any) (mem.BufferSlice, error)
		Unmarshal(mem.BufferSlice, any) error
	}{"ours": Codec(), "generated": encoding.GetCodecV2("proto")} {
		b.Run("read/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				_ = c.Unmarshal(buffers, &checkv1.CheckRequest{})
			}
		})
		b.Run("write/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				data, _ := c.Marshal(results)
				data.Free()
			}
		})
	}
}
