package regiongrpc

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

// requests returns loan requests with every field set, and with the largest numbers.
func requests(t testing.TB) []region.LoanRequest {
	t.Helper()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	subject := headgate.SubjectOf("user", "u1")
	return []region.LoanRequest{
		{
			From: "eu", Epoch: math.MaxUint64, Subject: subject, Counter: maxCounter, Units: headgate.MaxCost,
			Whole: headgate.Limit{Count: headgate.MaxCost, Window: time.Second, Burst: headgate.MaxCost},
		},
		{
			From: "us-1", Epoch: 1, Subject: subject, Counter: headgate.CounterOf("r", "", headgate.SlidingWindow), Units: 1, Window: 1_700_000_000_000_000,
			Whole: headgate.Limit{Algorithm: headgate.SlidingWindow, Align: headgate.OnClockSpread, Count: 1, Window: 366 * 24 * time.Hour},
		},
		{
			From: "ap", Subject: subject, Units: 5, Window: 1_700_000_000_000_001,
			Whole: headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 1, Window: time.Millisecond},
		},
		{
			From: "ap", Subject: subject, Units: 5, Window: -1,
			Whole: headgate.Limit{Algorithm: headgate.FixedWindow, Calendar: headgate.Month, Count: 7, TimeZone: berlin, AnchorDay: 31},
		},
	}
}

// transmit encodes and decodes a message.
func transmit[M proto.Message](t testing.TB, sent, received M) M {
	t.Helper()
	data, err := proto.Marshal(sent)
	if err == nil {
		err = proto.Unmarshal(data, received)
	}
	if err != nil {
		t.Fatal(err)
	}
	return received
}

func TestRequest(t *testing.T) {
	t.Parallel()
	var d decoder
	for _, want := range requests(t) {
		got, ok := d.request(transmit(t, messageOf(&want), &regionv1.LendRequest{}))
		if want.Whole.TimeZone != nil && got.Whole.TimeZone != nil {
			if got.Whole.TimeZone.String() != want.Whole.TimeZone.String() {
				t.Errorf("time zone %s, want %s", got.Whole.TimeZone, want.Whole.TimeZone)
			}
			got.Whole.TimeZone = want.Whole.TimeZone
		}
		if !ok || got != want {
			t.Errorf("%+v became %+v, %v", want, got, ok)
		}
	}
}

// TestNumbers holds the numbers on the wire to those in region.proto.
func TestNumbers(t *testing.T) {
	t.Parallel()
	if headgate.TokenBucket != 0 || headgate.FixedWindow != 2 || headgate.SlidingWindow != 3 {
		t.Error("an algorithm has another number")
	}
	if headgate.FromFirst != 0 || headgate.OnClock != 1 || headgate.OnClockSpread != 2 {
		t.Error("an alignment has another number")
	}
	if headgate.NoCalendar != 0 || headgate.Minute != 1 || headgate.Hour != 2 || headgate.Day != 3 || headgate.Week != 4 || headgate.Month != 5 {
		t.Error("a calendar unit has another number")
	}
	for number, name := range []string{"", "no_units", "borrowing", "other_window", "other_members", "unlendable", "store_unavailable"} {
		if got := loanOf(&regionv1.LendResponse{Reason: uint32(number)}).Rejection.String(); got != name {
			t.Errorf("reason %d is %q, want %q", number, got, name)
		}
	}
}

func TestHostileRequest(t *testing.T) {
	t.Parallel()
	var d decoder
	tests := map[string]func(m *regionv1.LendRequest){
		"no subject":            func(m *regionv1.LendRequest) { m.Subject = nil },
		"short subject":         func(m *regionv1.LendRequest) { m.Subject = m.GetSubject()[:15] },
		"long subject":          func(m *regionv1.LendRequest) { m.Subject = append(m.GetSubject(), 0) },
		"counter of 49 bits":    func(m *regionv1.LendRequest) { m.Counter = 1 << 48 },
		"no units":              func(m *regionv1.LendRequest) { m.Units = 0 },
		"negative units":        func(m *regionv1.LendRequest) { m.Units = -1 },
		"too many units":        func(m *regionv1.LendRequest) { m.Units = headgate.MaxCost + 1 },
		"no limit":              func(m *regionv1.LendRequest) { m.Whole = nil },
		"empty limit":           func(m *regionv1.LendRequest) { m.Whole = &regionv1.Limit{} },
		"unknown algorithm":     func(m *regionv1.LendRequest) { m.Whole.Algorithm = 6 },
		"algorithm of 9 bits":   func(m *regionv1.LendRequest) { m.Whole.Algorithm = 256 + 3 },
		"unknown alignment":     func(m *regionv1.LendRequest) { m.Whole.Align = 3 },
		"alignment of 9 bits":   func(m *regionv1.LendRequest) { m.Whole.Align = 256 },
		"unknown calendar":      func(m *regionv1.LendRequest) { m.Whole.Calendar = 6 },
		"calendar of 9 bits":    func(m *regionv1.LendRequest) { m.Whole.Calendar = 256 },
		"anchor without month":  func(m *regionv1.LendRequest) { m.Whole.AnchorDay = 1 },
		"large anchor":          func(m *regionv1.LendRequest) { m.Whole.AnchorDay = math.MaxUint32 },
		"no window":             func(m *regionv1.LendRequest) { m.Whole.WindowUs = 0 },
		"negative window":       func(m *regionv1.LendRequest) { m.Whole.WindowUs = -1_000_000 },
		"overflowing window":    func(m *regionv1.LendRequest) { m.Whole.WindowUs = math.MaxInt64/1000 + 1 },
		"wrapping window":       func(m *regionv1.LendRequest) { m.Whole.WindowUs = math.MinInt64 + 1_000_000 },
		"negative count":        func(m *regionv1.LendRequest) { m.Whole.Count = -1 },
		"large count":           func(m *regionv1.LendRequest) { m.Whole.Count = math.MaxInt64 },
		"negative burst":        func(m *regionv1.LendRequest) { m.Whole.Burst = -1 },
		"burst of a window":     func(m *regionv1.LendRequest) { m.Whole.Burst = 1 },
		"zone without calendar": func(m *regionv1.LendRequest) { m.Whole.TimeZone = "Europe/Berlin" },
		"unknown zone":          func(m *regionv1.LendRequest) { m.Whole = quota("Mars/Phobos") },
		"local zone":            func(m *regionv1.LendRequest) { m.Whole = quota("Local") },
		"path as zone":          func(m *regionv1.LendRequest) { m.Whole = quota("../../etc/localtime") },
		"long zone":             func(m *regionv1.LendRequest) { m.Whole = quota(strings.Repeat("Europe/", 1000)) },
		"unknown field":         func(m *regionv1.LendRequest) { m.ProtoReflect().SetUnknown([]byte{0x78, 1}) },
		"unknown field of the limit": func(m *regionv1.LendRequest) {
			m.Whole.ProtoReflect().SetUnknown([]byte{0x78, 1})
		},
	}
	for name, change := range tests {
		m := messageOf(&requests(t)[2])
		if _, ok := d.request(m); !ok {
			t.Fatal("the valid request is rejected")
		}
		change(m)
		if a, ok := d.request(transmit(t, m, &regionv1.LendRequest{})); ok {
			t.Errorf("%s: accepted as %+v", name, a)
		}
	}
}

func quota(zone string) *regionv1.Limit {
	return &regionv1.Limit{Algorithm: 2, Calendar: 3, Count: 1, TimeZone: zone}
}

// FuzzRequest checks that whatever is accepted is valid, and is encoded as it was received.
func FuzzRequest(f *testing.F) {
	for _, a := range requests(f) {
		data, err := proto.Marshal(messageOf(&a))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	var d decoder
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &regionv1.LendRequest{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		a, ok := d.request(m)
		if !ok {
			return
		}
		if err := a.Whole.Validate(); err != nil || a.Units < 1 || a.Units > headgate.MaxCost || a.Counter > maxCounter {
			t.Errorf("accepted %+v: %v", a, err)
		}
		if again := messageOf(&a); !proto.Equal(again, m) {
			t.Errorf("%v became %v", m, again)
		}
	})
}

// TestLoan checks that a peer cannot report numbers that no lender has.
func TestLoan(t *testing.T) {
	t.Parallel()
	for _, want := range []region.Loan{{Units: headgate.MaxCost, Left: 1}, {Rejection: region.StoreUnavailable}} {
		if got := loanOf(transmit(t, loanMessage(want), &regionv1.LendResponse{})); got != want {
			t.Errorf("%+v became %+v", want, got)
		}
	}
	got := loanOf(&regionv1.LendResponse{Units: math.MinInt64, Left: -1, Reason: 263})
	if want := (region.Loan{Rejection: region.Unlendable}); got != want {
		t.Errorf("the loan is %+v, want %+v", got, want)
	}
}
