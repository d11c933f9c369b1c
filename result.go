package headgate

import (
	"errors"
	"time"
)

// Never is the RetryAfter of a charge that can never be granted, because it costs more than its limit holds.
const Never time.Duration = -1

// Errors of a store. Both mean that the store did not decide; whoever asked must.
var (
	// ErrUnavailable says that a charge was not decided by the store.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnanswered says besides that the charge was sent and not answered: it may have been recorded. It must not be sent
	// again, refunded or charged elsewhere.
	ErrUnanswered = errors.New("charge sent but not answered")
)

// Result is what became of one charge.
type Result struct {
	// Allowed says whether this charge fits, whatever became of the others of the call.
	Allowed bool
	// Granted units were recorded; of a refund, given back. 0 if the request was denied as a whole, and for a peek.
	Granted int64
	// Remaining is how many units could be taken right after: 3 of a limit of 10 once 7 are used.
	Remaining int64
	// RetryAfter is the earliest time at which the same charge could fit, if nobody else charges meanwhile; 0 if it fits
	// now, Never if it never can.
	RetryAfter time.Duration
	// ResetAfter is when the present window ends; of a bucket or a log, when it would be as if it had never been used. 0 if it is
	// so now. What a sliding window was charged counts beyond its end, so that RetryAfter may be later.
	ResetAfter time.Duration
	// UnusedAfter is when the counter would be as if it had never been used: ResetAfter, or a window later where what a sliding
	// window was charged counts in the next one.
	UnusedAfter time.Duration
	// Delay is how long to wait before going on: what makes a leaky bucket's output even.
	Delay time.Duration
	// Time is the store's when it decided.
	Time time.Time
	// Receipt gives the granted units back, in Charge.Refund.
	Receipt Receipt
	// Nodes is how many nodes shared the store when last heard; 0 if the store does not know.
	Nodes int32
	// Rank is which of the Nodes this one is, from 1; 0 if the store does not know.
	Rank int32
	// Path tells who decided, if it was not the store.
	Path Path
	// Err says that the store did not decide this charge; the other fields, but Nodes and Rank, are then empty.
	Err error
}
