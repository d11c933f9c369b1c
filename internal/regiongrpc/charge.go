package regiongrpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

const (
	// maxCharges is the maximum number of charges in a message.
	maxCharges = 1_024
	// maxExact is the largest number that a store counts exactly.
	maxExact = 1 << 53
)

// Failures of a charge, on the wire.
const (
	decided = iota
	unavailable
	unanswered
)

var (
	errHomeUnavailable = fmt.Errorf("%w: in its home region", headgate.ErrUnavailable)
	errHomeUnanswered  = fmt.Errorf("%w: %w: in its home region", headgate.ErrUnavailable, headgate.ErrUnanswered)
)

// Shard implements [headgate.Store]. A region fails as a whole.
func (l *link) Shard(headgate.Subject) int { return 0 }

// Take decides charges in the other region. It never repeats a call.
func (l *link) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if len(charges) > maxCharges {
		return fail(results, fmt.Errorf("%w: region %s: %d charges in one request: must be at most %d", headgate.ErrUnavailable, l.member.Name, len(charges), maxCharges))
	}
	m := &regionv1.TakeRequest{From: l.network.options.Own, Subjects: l.network.options.Subjects, Charges: make([]*regionv1.Charge, len(charges))}
	for i := range charges {
		m.Charges[i] = chargeMessage(&charges[i])
	}
	var to peer.Peer
	response, err := l.client.Take(ctx, m, grpc.Peer(&to))
	if err == nil && len(response.GetResults()) != len(charges) {
		err = fmt.Errorf("%d results for %d charges", len(response.GetResults()), len(charges))
	}
	switch {
	case err == nil:
		return resultsOf(response.GetResults(), results)
	case notExecuted(&to, err):
		return fail(results, fmt.Errorf("%w: region %s: %w", headgate.ErrUnavailable, l.member.Name, err))
	}
	return fail(results, fmt.Errorf("%w: %w: region %s: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, l.member.Name, err))
}

// notExecuted reports whether the region certainly has not decided the charges of a call that failed: no connection had been chosen to send
// it, or the region has rejected it.
func notExecuted(to *peer.Peer, err error) bool {
	if to.Addr == nil {
		return true
	}
	switch status.Code(err) {
	case codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return true
	}
	return false
}

// fail sets the error of all results, and returns it.
func fail(results []headgate.Result, err error) error {
	for i := range results {
		results[i] = headgate.Result{Err: err}
	}
	return err
}

// Take implements the method of the service.
func (s *service) Take(ctx context.Context, m *regionv1.TakeRequest) (*regionv1.TakeResponse, error) {
	if err := s.network.authorize(ctx, m.GetFrom()); err != nil {
		return nil, err
	}
	charges, problem := s.decoder.charges(m)
	if problem != "" {
		return nil, status.Error(codes.InvalidArgument, problem)
	}
	if m.GetSubjects() != s.network.options.Subjects {
		return nil, status.Error(codes.FailedPrecondition, otherSecret)
	}
	results := make([]headgate.Result, len(charges))
	err := s.home.Take(ctx, charges, results)
	if errors.Is(err, region.ErrNotHome) {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	response := &regionv1.TakeResponse{Results: make([]*regionv1.Result, len(results))}
	for i := range results {
		response.Results[i] = resultMessage(&results[i])
	}
	return response, nil
}

// chargeMessage encodes a charge.
func chargeMessage(c *headgate.Charge) *regionv1.Charge {
	return &regionv1.Charge{
		Subject: c.Subject[:], Counter: uint64(c.Counter), Limit: limitMessage(&c.Limit), Cost: c.Cost, AtLeast: c.AtLeast,
		MaxDelayUs: c.MaxDelay.Microseconds(), Observe: c.Observe, Twin: uint64(c.Twin), Strict: c.Strict, Critical: c.Critical,
		HoldUs: c.Hold.Microseconds(), Prepaid: c.Prepaid, Release: receiptMessage(&c.Release), Force: c.Force, AgeUs: c.Age.Microseconds(),
		Credit: c.Credit, WithinUs: c.Within, Refund: receiptMessage(&c.Refund),
	}
}

// charges decodes the charges of a request, or returns what is wrong with them. It rejects fields that only a newer version knows, because the
// charges may not mean what this version would count.
func (d *decoder) charges(m *regionv1.TakeRequest) (charges []headgate.Charge, problem string) {
	if n := len(m.GetCharges()); n > maxCharges {
		return nil, fmt.Sprintf("%d charges: must be at most %d", n, maxCharges)
	}
	if hasUnknown(m) {
		return nil, "unknown field: update the servers of this region"
	}
	charges = make([]headgate.Charge, len(m.GetCharges()))
	for i, c := range m.GetCharges() {
		if !d.charge(c, &charges[i]) {
			return nil, fmt.Sprintf("charge %d: invalid, or a newer version is needed: update the servers of this region", i)
		}
	}
	return charges, ""
}

// charge decodes a charge. It returns false if it is invalid.
func (d *decoder) charge(m *regionv1.Charge, c *headgate.Charge) (ok bool) {
	if hasUnknown(m) || hasUnknown(m.GetLimit()) || len(m.GetSubject()) != len(c.Subject) || max(m.GetCounter(), m.GetTwin()) > maxCounter {
		return false
	}
	for _, us := range [...]int64{m.GetMaxDelayUs(), m.GetHoldUs(), m.GetAgeUs()} {
		if us < 0 || us > math.MaxInt64/int64(time.Microsecond) {
			return false
		}
	}
	*c = headgate.Charge{
		Subject: headgate.Subject(m.GetSubject()), Counter: headgate.Counter(m.GetCounter()), Cost: m.GetCost(), AtLeast: m.GetAtLeast(),
		MaxDelay: duration(m.GetMaxDelayUs()), Observe: m.GetObserve(), Twin: headgate.Counter(m.GetTwin()), Strict: m.GetStrict(), Critical: m.GetCritical(),
		Hold: duration(m.GetHoldUs()), Prepaid: m.GetPrepaid(), Force: m.GetForce(), Age: duration(m.GetAgeUs()), Credit: m.GetCredit(), Within: m.GetWithinUs(),
	}
	if c.Limit, ok = d.limit(m.GetLimit()); !ok || c.Limit.Algorithm == headgate.Concurrency {
		return false
	}
	if c.Cost < 0 || c.Cost > headgate.MaxCost || c.AtLeast < 0 || c.AtLeast > c.Cost || c.Hold > headgate.MaxHold || c.Within < 0 || c.Within > maxExact {
		return false
	}
	release, refund := receiptOf(m.GetRelease(), &c.Release), receiptOf(m.GetRefund(), &c.Refund)
	return release && refund
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// receiptMessage encodes a receipt; nil if it is empty.
func receiptMessage(r *headgate.Receipt) *regionv1.Receipt {
	if r.Units == 0 {
		return nil
	}
	return &regionv1.Receipt{Units: r.Units, Mark: r.Mark, TimeUs: r.Time, EmptyUs: r.Empty, Back: r.Back}
}

// receiptOf decodes a receipt. It returns false if it is invalid.
func receiptOf(m *regionv1.Receipt, r *headgate.Receipt) bool {
	if m == nil {
		return true
	}
	*r = headgate.Receipt{Units: m.GetUnits(), Mark: m.GetMark(), Time: m.GetTimeUs(), Empty: m.GetEmptyUs(), Back: m.GetBack()}
	for _, n := range [...]int64{r.Mark, r.Time, r.Empty, r.Back} {
		if n < 0 || n > maxExact {
			return false
		}
	}
	return !hasUnknown(m) && r.Units > 0 && r.Units <= headgate.MaxCost
}

// resultMessage encodes a result.
func resultMessage(r *headgate.Result) *regionv1.Result {
	switch {
	case errors.Is(r.Err, headgate.ErrUnanswered):
		return &regionv1.Result{Failure: unanswered}
	case r.Err != nil:
		return &regionv1.Result{Failure: unavailable}
	}
	retryAfter := r.RetryAfter.Microseconds()
	if r.RetryAfter < 0 {
		retryAfter = int64(headgate.Never)
	}
	return &regionv1.Result{
		Allowed: r.Allowed, Granted: r.Granted, Remaining: r.Remaining, RetryAfterUs: retryAfter, ResetAfterUs: r.ResetAfter.Microseconds(),
		UnusedAfterUs: r.UnusedAfter.Microseconds(), DelayUs: r.Delay.Microseconds(), TimeUs: r.Time.UnixMicro(), Receipt: receiptMessage(&r.Receipt),
	}
}

// resultsOf decodes results. It returns the first error of a charge.
func resultsOf(messages []*regionv1.Result, results []headgate.Result) (err error) {
	for i, m := range messages {
		r := &results[i]
		*r = headgate.Result{
			Allowed: m.GetAllowed(), Granted: m.GetGranted(), Remaining: m.GetRemaining(), RetryAfter: duration(m.GetRetryAfterUs()),
			ResetAfter: duration(m.GetResetAfterUs()), UnusedAfter: duration(m.GetUnusedAfterUs()), Delay: duration(m.GetDelayUs()),
			Time: time.UnixMicro(m.GetTimeUs()).UTC(),
		}
		if m.GetRetryAfterUs() < 0 {
			r.RetryAfter = headgate.Never
		}
		switch {
		case m.GetFailure() == unavailable:
			*r = headgate.Result{Err: errHomeUnavailable}
		case m.GetFailure() != decided || r.Granted < 0 || r.Granted > headgate.MaxCost || !receiptOf(m.GetReceipt(), &r.Receipt):
			*r = headgate.Result{Err: errHomeUnanswered}
		}
		if err == nil {
			err = r.Err
		}
	}
	return err
}
