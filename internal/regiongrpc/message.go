package regiongrpc

import (
	"math"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

// maxCounter is the largest counter: 48 bits.
const maxCounter = 1<<48 - 1

// messageOf encodes a loan request.
func messageOf(a *region.LoanRequest) *regionv1.LendRequest {
	return &regionv1.LendRequest{
		From: a.From, Epoch: a.Epoch, Subject: a.Subject[:], Counter: uint64(a.Counter), WindowUs: a.Window, Units: a.Units,
		Whole: limitMessage(&a.Whole),
	}
}

// limitMessage encodes a limit.
func limitMessage(l *headgate.Limit) *regionv1.Limit {
	m := &regionv1.Limit{
		Algorithm: uint32(l.Algorithm), Align: uint32(l.Align), Calendar: uint32(l.Calendar),
		Count: l.Count, WindowUs: l.Window.Microseconds(), Burst: l.Burst, AnchorDay: uint32(l.AnchorDay),
	}
	if l.TimeZone != nil {
		m.TimeZone = l.TimeZone.String()
	}
	return m
}

// decoder decodes requests of other regions. The zero value is ready to use.
type decoder struct{ zones zones }

// request decodes a request for units. It returns false if a field is invalid, or unknown because a newer version sent it: such a limit must not be
// lent, because it may not mean what this version would count.
func (d *decoder) request(m *regionv1.LendRequest) (a region.LoanRequest, ok bool) {
	if hasUnknown(m) || hasUnknown(m.GetWhole()) || len(m.GetSubject()) != len(a.Subject) || m.GetCounter() > maxCounter ||
		m.GetUnits() < 1 || m.GetUnits() > headgate.MaxCost {
		return a, false
	}
	a = region.LoanRequest{
		From: m.GetFrom(), Epoch: m.GetEpoch(), Subject: headgate.Subject(m.GetSubject()), Counter: headgate.Counter(m.GetCounter()),
		Window: m.GetWindowUs(), Units: m.GetUnits(),
	}
	a.Whole, ok = d.limit(m.GetWhole())
	return a, ok
}

func hasUnknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// limit decodes a valid limit. Validate rejects numbers that no constant has.
func (d *decoder) limit(m *regionv1.Limit) (l headgate.Limit, ok bool) {
	window := m.GetWindowUs()
	if max(m.GetAlgorithm(), m.GetAlign(), m.GetCalendar(), m.GetAnchorDay()) > math.MaxUint8 ||
		window < 0 || window > math.MaxInt64/int64(time.Microsecond) {
		return l, false
	}
	l = headgate.Limit{
		Algorithm: headgate.Algorithm(m.GetAlgorithm()), Align: headgate.Align(m.GetAlign()), Calendar: headgate.Calendar(m.GetCalendar()),
		Count: m.GetCount(), Window: time.Duration(window) * time.Microsecond, Burst: m.GetBurst(), AnchorDay: int(m.GetAnchorDay()),
	}
	if name := m.GetTimeZone(); name != "" {
		if l.TimeZone = d.zones.load(name); l.TimeZone == nil {
			return l, false
		}
	}
	return l, l.Validate() == nil
}

// loanMessage encodes a loan.
func loanMessage(l region.Loan) *regionv1.LendResponse {
	return &regionv1.LendResponse{Units: l.Units, Left: l.Left, Reason: uint32(l.Rejection)}
}

// loanOf decodes a loan. A reason that only a newer version knows becomes Unlendable.
func loanOf(m *regionv1.LendResponse) region.Loan {
	l := region.Loan{Units: max(0, m.GetUnits()), Left: max(0, m.GetLeft()), Rejection: region.Unlendable}
	if m.GetReason() <= uint32(region.StoreUnavailable) {
		l.Rejection = region.Rejection(m.GetReason())
	}
	return l
}

// maxZones is the number of time zones that are kept; the tz database has about 600 names.
const maxZones = 1_000

// zones keeps the time zones that were loaded from the tz database.
type zones struct {
	mu    sync.Mutex
	known map[string]*time.Location
}

// load returns a time zone by its name, or nil if there is none.
func (z *zones) load(name string) *time.Location {
	z.mu.Lock()
	defer z.mu.Unlock()
	if zone := z.known[name]; zone != nil {
		return zone
	}
	zone, err := time.LoadLocation(name)
	if err != nil || strings.EqualFold(name, "local") || len(z.known) >= maxZones {
		return nil
	}
	if z.known == nil {
		z.known = map[string]*time.Location{}
	}
	z.known[name] = zone
	return zone
}
