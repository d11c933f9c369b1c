package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headgate/headgate"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// TestOutgoing decodes requests with the generated code.
func TestOutgoing(t *testing.T) {
	t.Parallel()
	requests := []headgate.Request{
		{},
		{Cost: 5, Rule: "login"},
		{Cost: -1},
		{Attributes: headgate.Attributes{"ip": "192.0.2.1", "path": "/a", "": "", "header.x": strings.Repeat("x", 300)}},
	}
	var out raw
	want := checkv1.CheckStreamRequest{Releases: []*checkv1.SlotRelease{
		{}, {Slots: []byte("slots"), DurationUs: 1_500, Status: 404, Cancelled: true},
	}}
	out.appendRelease(&release{})
	out.appendRelease(&release{[]byte("slots"), headgate.Outcome{Duration: 1500 * time.Microsecond, Status: 404, Cancelled: true}})
	for i, req := range requests {
		id := uint64(1) << (20 * i)
		parent := strings.Repeat("-", i)
		var w waiter
		if err := w.encode(&req, parent, i == 1); err != nil {
			t.Fatal(err)
		}
		out.append(id, w.request)
		want.Checks = append(want.Checks, &checkv1.StreamCheck{Id: id, Request: &checkv1.CheckRequest{
			Attributes: req.Attributes, Cost: req.Cost, Rule: req.Rule, Traceparent: parent, Begin: i == 1,
		}})
	}
	data, err := codec{}.Marshal(&out)
	if err != nil {
		t.Fatal(err)
	}
	var got checkv1.CheckStreamRequest
	if err := proto.Unmarshal(data.Materialize(), &got); err != nil || !proto.Equal(&got, &want) {
		t.Errorf("%v, error %v; want %v", &got, err, &want)
	}
}

// TestReleasesAreSplit checks that a message has a bounded size, however many requests have ended at once.
func TestReleasesAreSplit(t *testing.T) {
	t.Parallel()
	const ended = 10_000
	var l link
	for range ended {
		l.releases = append(l.releases, release{slots: make([]byte, 16)})
	}
	all := 0
	for out := (raw{}); l.fill(&out); {
		var message checkv1.CheckStreamRequest
		if err := proto.Unmarshal(out.data, &message); err != nil || len(out.data) > maxMessage+100 {
			t.Errorf("%d bytes, error %v", len(out.data), err)
		}
		all += len(message.GetReleases())
	}
	if all != ended {
		t.Errorf("%d of %d releases", all, ended)
	}
}

// full sets every field of a message to a different number, so that no field can be confused or omitted.
func full(m protoreflect.Message, n *int64) {
	all := m.Descriptor().Fields()
	for i := range all.Len() {
		f := all.Get(i)
		*n++
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("name").MapKey(), protoreflect.ValueOfString("value"))
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			list := m.Mutable(f).List()
			for range 2 {
				full(list.AppendMutable().Message(), n)
			}
		case f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfString("ip"))
		case f.Kind() == protoreflect.MessageKind:
			full(m.Mutable(f).Message(), n)
		case f.Kind() == protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(*n))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("s"+string(rune('0'+*n%10))+string(rune('a'+*n%26))))
		case f.Kind() == protoreflect.EnumKind:
			m.Set(f, protoreflect.ValueOfEnum(3))
		}
	}
}

// decisionBy returns the decision of a message decoded by the generated code.
func decisionBy(m *checkv1.CheckResponse) headgate.Decision {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	d := headgate.Decision{
		Allowed: m.GetAllowed(), RetryAfter: us(m.GetRetryAfterUs()), Delay: us(m.GetDelayUs()),
		Path: headgate.Path(m.GetPath()), Version: m.GetVersion(), Time: time.UnixMicro(m.GetTimeUs()), Skipped: m.GetSkipped(),
	}
	for _, l := range m.GetLimits() {
		d.Limits = append(d.Limits, headgate.LimitDecision{
			Rule: l.GetRule(), Name: l.GetName(), Cost: l.GetCost(), Missing: l.GetMissing(),
			Enforced: l.GetEnforced(), Exposed: l.GetExposed(), Origin: headgate.FromOverride,
			Limit: headgate.Limit{
				Algorithm: headgate.FixedWindow, Count: l.GetCount(), Window: us(l.GetWindowUs()), Burst: l.GetBurst(),
			},
			Result: headgate.Result{
				Allowed: l.GetAllowed(), Granted: l.GetGranted(), Remaining: l.GetRemaining(),
				RetryAfter: us(l.GetRetryAfterUs()), ResetAfter: us(l.GetResetAfterUs()), Delay: us(l.GetDelayUs()), Time: d.Time,
			},
		})
	}
	return d
}

// TestDecision decodes messages of the generated code, including unknown fields of later versions.
func TestDecision(t *testing.T) {
	t.Parallel()
	var m checkv1.CheckResponse
	full(m.ProtoReflect(), new(int64))
	for _, l := range m.GetLimits() {
		l.Failed = false
		l.ProtoReflect().SetUnknown(protowire.AppendFixed64(protowire.AppendTag(nil, 99, protowire.Fixed64Type), 1))
	}
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1_000, protowire.BytesType), "news"))
	got, err := decisionOf(&m)
	if want := decisionBy(&m); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("decision\n%+v, error %v, want\n%+v", got, err, want)
	}

	m.GetLimits()[1].Failed = true
	got, err = decisionOf(&m)
	want := headgate.Result{Allowed: true, Err: errFailed}
	if err != nil || got.Limits[1].Result != want || !errors.Is(got.Limits[1].Err, headgate.ErrUnavailable) {
		t.Errorf("a limit that was not decided: %+v, error %v", got.Limits[1], err)
	}

	m.RetryAfterUs, m.Limits[0].RetryAfterUs = -1, -1
	got, err = decisionOf(&m)
	if err != nil || got.RetryAfter != headgate.Never || got.Limits[0].RetryAfter != headgate.Never {
		t.Errorf("never: %+v, error %v", got, err)
	}
	if got, err = decisionOf(&checkv1.CheckResponse{}); err != nil || fmt.Sprint(got) != fmt.Sprint(headgate.Decision{}) {
		t.Errorf("nothing: %+v, error %v", got, err)
	}
}

// FuzzIncoming decodes arbitrary input and compares the result with that of the generated code.
func FuzzIncoming(f *testing.F) {
	var m checkv1.CheckStreamResponse
	full(m.ProtoReflect(), new(int64))
	data, err := proto.Marshal(&m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var in incoming
		err := codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, &in)
		var m checkv1.CheckStreamResponse
		if proto.Unmarshal(data, &m) == nil && err != nil {
			t.Errorf("the generated code reads %v, but here: %v", &m, err)
		}
		if err != nil {
			return
		}
		for _, a := range in.replies {
			_, _ = names{}.decision(a.response)
		}
	})
}

func TestText(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, s := range []string{"", "plain", "ümlaut", "\xfc", "\xfd", "a\xfcb", "\xff\xfe", "\ufffd", "\xe2\x82"} {
		got := text(s)
		if !utf8.ValidString(got) || utf8.ValidString(s) && got != s {
			t.Errorf("%q becomes %q", s, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q both become %q", s, other, got)
		}
		seen[got] = s
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	n := names{}
	for i := range 3 * maxNames {
		b := []byte(time.Duration(i).String())
		for range 2 {
			if name := n.intern(b); name != string(b) {
				t.Fatalf("%s becomes %s", b, name)
			}
		}
	}
	if len(n) > maxNames {
		t.Errorf("%d names are kept", len(n))
	}
}

// decisionOf encodes a message with the generated code and decodes it here.
func decisionOf(m *checkv1.CheckResponse) (headgate.Decision, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return headgate.Decision{}, err
	}
	return names{}.decision(data)
}
