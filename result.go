package headgate

import (
	"errors"
	"time"
)

// Never is the RetryAfter of a charge that can never be granted because it costs more than its limit's capacity.
const Never time.Duration = -1

// Unknown is the RetryAfter of a charge that a concurrency limit denies: it can be granted as soon as enough units are released, and
// the store does not know when that is. Nothing may be cached or leased for such a wait.
const Unknown time.Duration = -2

// Errors of a store. Both mean that the store did not decide, so that the caller must.
var (
	// ErrUnavailable means that the store did not decide a charge.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnanswered means that the charge was sent but no response was received: it may have been recorded. It must not be sent
	// again, refunded or charged elsewhere.
	ErrUnanswered = errors.New("charge sent but not answered")
)

// Result is the result of one charge.
type Result struct {
	// Allowed is whether this charge fits its limit, regardless of the other charges of the call.
	Allowed bool
	// Granted is how many units were recorded, or given back by a refund or a credit. It is 0 for a peek and for an ordinary
	// charge if the call was denied. For SetSlots it is how many units the holder was set to, 0 if the operation was ignored.
	Granted int64
	// Remaining is how many units could be taken next: 3 for a limit of 10 after 7 were used.
	Remaining int64
	// RetryAfter is the wait after which the same charge could fit if there are no other charges in between. It is 0 if the charge
	// fits now, Never if it never can, and Unknown if a concurrency limit denies it.
	RetryAfter time.Duration
	// ResetAfter is the time until the current window ends, or until a bucket or a log would be as if unused; for a concurrency
	// limit, until all holders have lost their units, unless they renew them, rounded up to a second of the store's clock. It is 0
	// if the counter is unused. Charges of a sliding window still count after its end, so that RetryAfter may be later.
	ResetAfter time.Duration
	// UnusedAfter is the time until the counter would be as if unused: ResetAfter, or a window later if the charges of a sliding
	// window count in the next window.
	UnusedAfter time.Duration
	// Delay is how long to wait before serving the request, so that a leaky bucket's output is even.
	Delay time.Duration
	// HolderUnits is how many units of a concurrency limit the charge's Holder has after the charge.
	HolderUnits int64
	// Time is the store's time of the decision.
	Time time.Time
	// Receipt identifies the granted units in Charge.Refund, or the hold in Charge.Release.
	Receipt Receipt
	// Nodes is how many nodes shared the store when the store last reported it; 0 if unknown.
	Nodes int32
	// Rank is the position of this node among the Nodes, from 1; 0 if unknown.
	Rank int32
	// Path is how the charge was decided, if not by the store.
	Path Path
	// Err is not nil if the store did not decide this charge; the other fields except Nodes and Rank are then zero.
	Err error
}
