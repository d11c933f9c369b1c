package regiongrpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

const (
	// usageTimeout is how long a reader waits for another region.
	usageTimeout = time.Second
	// creditTimeout is longer, because the servers of the region return the units that they have leased first.
	creditTimeout = 3 * time.Second
)

// Counters are the counters of this region, which operators of other regions read and give units back to.
type Counters interface {
	Usage(ctx context.Context, ref region.CounterRef) (region.Usage, error)
	Credit(ctx context.Context, ref region.CounterRef, units int64) (int64, error)
}

// ServeCounters sets the counters of this region. Call it before the server starts.
func (n *Network) ServeCounters(c Counters) { n.counters = c }

// Reply is the response of another region to a call about a counter.
type Reply struct {
	Region string
	Usage  region.Usage
	// Credited is how many units it has given back.
	Credited int64
	// Err is why there is no response.
	Err error
}

// Usage reads the counter of all other regions.
func (n *Network) Usage(ctx context.Context, ref region.CounterRef) []Reply {
	return n.callAll(ctx, n.usageTimeout, func(ctx context.Context, l *link, r *Reply) error {
		m, err := l.client.Usage(ctx, &regionv1.UsageRequest{
			From: n.options.Own, Subject: ref.Subject[:], Counter: uint64(ref.Counter), Whole: limitMessage(&ref.Whole), Subjects: n.options.Subjects,
		})
		if err != nil {
			return err
		}
		r.Usage = region.Usage{Capacity: m.GetCapacity(), Remaining: m.GetRemaining(), Lent: m.GetLent(), Time: time.UnixMicro(m.GetTimeUs())}
		return rejection(m.GetReason())
	})
}

// Credit gives back units in other regions, which are given by name, once. A region whose Reply has an Err may have given them back.
func (n *Network) Credit(ctx context.Context, ref region.CounterRef, units map[string]int64) []Reply {
	return n.callAll(ctx, n.creditTimeout, func(ctx context.Context, l *link, r *Reply) error {
		if units[r.Region] <= 0 {
			return nil
		}
		m, err := l.client.Credit(ctx, &regionv1.CreditRequest{
			From: n.options.Own, Subject: ref.Subject[:], Counter: uint64(ref.Counter), Whole: limitMessage(&ref.Whole), Units: units[r.Region], Subjects: n.options.Subjects,
		})
		if err != nil {
			return err
		}
		r.Credited = max(0, m.GetUnits())
		return rejection(m.GetReason())
	})
}

// callAll calls all other regions at the same time.
func (n *Network) callAll(ctx context.Context, timeout time.Duration, call func(context.Context, *link, *Reply) error) []Reply {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replies := make([]Reply, len(n.links))
	done := make(chan struct{})
	for i, l := range n.links {
		replies[i].Region = l.member.Name
		go func() {
			defer func() { done <- struct{}{} }()
			if err := call(ctx, l, &replies[i]); err != nil {
				replies[i].Err = problemOf(err)
			}
		}()
	}
	for range n.links {
		<-done
	}
	return replies
}

var (
	errNoResponse  = errors.New("did not respond in time")
	errOldVersion  = errors.New("runs a version of Headgate that does not support this: upgrade it")
	errUnsupported = errors.New("does not support this limit: run the same version of Headgate in all regions")
	errSecret      = errors.New("responded, but " + otherSecret)
	errStore       = errors.New("responded, but its Redis is unavailable")
)

// problemOf returns what an operator needs to know about a failed call.
func problemOf(err error) error {
	switch status.Code(err) { //nolint:exhaustive // others have a message
	case codes.DeadlineExceeded, codes.Canceled:
		return errNoResponse
	case codes.Unimplemented:
		return errOldVersion
	case codes.Unavailable, codes.PermissionDenied:
		return fmt.Errorf("did not respond: %s", reason(err))
	}
	return err
}

func rejection(why uint32) error {
	switch region.Rejection(why) { //nolint:exhaustive // others are not used here
	case region.NotRejected:
		return nil
	case region.StoreUnavailable:
		return errStore
	case region.OtherMembers:
		return errSecret
	}
	return errUnsupported
}

// Usage implements the method of the service.
func (s *service) Usage(ctx context.Context, m *regionv1.UsageRequest) (*regionv1.UsageResponse, error) {
	ref, why, err := s.counterRef(ctx, m)
	if ref == nil {
		return &regionv1.UsageResponse{Reason: uint32(why)}, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxLendTime)
	defer cancel()
	u, err := s.network.counters.Usage(ctx, *ref)
	if err != nil {
		return &regionv1.UsageResponse{Reason: uint32(region.StoreUnavailable)}, nil
	}
	return &regionv1.UsageResponse{Capacity: u.Capacity, Remaining: u.Remaining, Lent: u.Lent, TimeUs: u.Time.UnixMicro()}, nil
}

// Credit implements the method of the service.
func (s *service) Credit(ctx context.Context, m *regionv1.CreditRequest) (*regionv1.CreditResponse, error) {
	ref, why, err := s.counterRef(ctx, m)
	if ref == nil || m.GetUnits() < 1 || m.GetUnits() > headgate.MaxCost {
		return &regionv1.CreditResponse{Reason: uint32(why)}, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxLendTime)
	defer cancel()
	units, err := s.network.counters.Credit(ctx, *ref, m.GetUnits())
	if err != nil {
		return &regionv1.CreditResponse{Reason: uint32(region.StoreUnavailable)}, nil
	}
	return &regionv1.CreditResponse{Units: units}, nil
}

// counterMessage is a message about a counter.
type counterMessage interface {
	proto.Message
	GetFrom() string
	GetSubject() []byte
	GetCounter() uint64
	GetWhole() *regionv1.Limit
	GetSubjects() uint64
}

// counterRef returns the counter of a message, or nil and why there is none.
func (s *service) counterRef(ctx context.Context, m counterMessage) (*region.CounterRef, region.Rejection, error) {
	if err := s.network.authorize(ctx, m.GetFrom()); err != nil {
		return nil, region.Unlendable, err
	}
	if m.GetSubjects() != s.network.options.Subjects {
		return nil, region.OtherMembers, nil
	}
	ref := region.CounterRef{Counter: headgate.Counter(m.GetCounter())}
	whole, ok := s.decoder.limit(m.GetWhole())
	if !ok || hasUnknown(m) || hasUnknown(m.GetWhole()) || len(m.GetSubject()) != len(ref.Subject) || m.GetCounter() > maxCounter ||
		s.network.counters == nil {
		return nil, region.Unlendable, nil
	}
	ref.Subject, ref.Whole = headgate.Subject(m.GetSubject()), whole
	return &ref, region.Unlendable, nil
}
