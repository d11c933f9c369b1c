// Package region makes several regions, each with its own store, count one limit together.
//
// Each region owns a share of every shared limit, and its store never grants more than that. A region that runs low borrows units from
// another one: the lender charges its own counter first, then the borrower credits its own, once, in the same window. Every step
// happens at most once, and a step that is lost makes the limit stricter, so that the regions together never grant more than the
// limit, whatever the network does. Nothing of this is on the path of a request.
//
// A Store observes the results of the charges that pass through it, a borrower requests units from peers, and a lender answers their requests. The
// package does not know how peers are reached, and knows no rules: a charge carries the whole limit.
package region

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// LoanRequest is a request for units of a counter.
type LoanRequest struct {
	// From is the region that borrows, and Epoch identifies the members and weights that it knows.
	From  string
	Epoch uint64

	Subject headgate.Subject
	Counter headgate.Counter
	Whole   headgate.Limit
	// Window is when the window began that the units are for, in microseconds since 1970; 0 for a bucket.
	Window int64
	// Units is how many units are wanted.
	Units int64
}

// Loan is the response to a LoanRequest. The lender has charged its own counter with Units.
type Loan struct {
	Units int64
	// Left is how many units the lender could lend now.
	Left int64
	// Rejection is why Units is 0.
	Rejection Rejection
}

// Rejection is why a region lends nothing. Its values are on the wire.
type Rejection uint8

const (
	// NotRejected means that units were lent.
	NotRejected Rejection = iota
	// NoUnits means that the lender has none to spare.
	NoUnits
	// Borrowing means that the lender itself borrows.
	Borrowing
	// OtherWindow means that the lender's store is in another window.
	OtherWindow
	// OtherMembers means that the lender knows other members or weights.
	OtherMembers
	// Unlendable means that such a limit is not lent.
	Unlendable
	// StoreUnavailable means that the lender's store did not respond in time.
	StoreUnavailable

	rejections
)

var rejectionNames = [...]string{"", "no_units", "borrowing", "other_window", "other_members", "unlendable", "store_unavailable"}

// String returns the rejection's name in metrics: "no_units".
func (r Rejection) String() string {
	if int(r) < len(rejectionNames) {
		return rejectionNames[r]
	}
	return "unknown"
}

// Link reaches the servers of another region.
type Link interface {
	// Lend requests units. It must not send a request twice. After an error, the peer may or may not have charged its counter.
	Lend(ctx context.Context, req LoanRequest) (Loan, error)
}

// Loan requests per counter and region are limited: one node at a time. A permit lasts for one part in permitsPerSpan of the time in which the
// limit's units come back, from minPermit to maxPermit.
const (
	permitsPerSpan = 16
	minPermit      = 30 * time.Millisecond
	maxPermit      = 300 * time.Millisecond
)

// permitCharge returns a charge on the permit to borrow units of a counter, which is in the same hash.
func permitCharge(c *headgate.Charge) headgate.Charge {
	return headgate.Charge{
		Subject: c.Subject, Counter: headgate.CounterOf("region permit", c.Counter.String(), headgate.TokenBucket),
		Limit: headgate.Limit{Count: 1, Window: permitTime(&c.Limit), Burst: 1},
	}
}

// permitTime returns how long a permit lasts.
func permitTime(l *headgate.Limit) time.Duration {
	span := l.Window
	if l.Algorithm == headgate.TokenBucket {
		span = refillTime(l)
	} else if l.Calendar != headgate.NoCalendar {
		return maxPermit
	}
	return min(max(span/permitsPerSpan, minPermit), maxPermit).Truncate(time.Millisecond)
}

// refillTime returns how long a bucket takes to refill.
func refillTime(l *headgate.Limit) time.Duration {
	return time.Duration(float64(l.Window) * float64(l.Capacity()) / float64(l.Count))
}

// lendable reports whether units of a limit may be lent. Logs and concurrency limits record who took a unit and when, and a leaky bucket
// has promised its units to requests that wait.
func lendable(l *headgate.Limit) bool {
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow:
		return l.Count > 0
	}
	return false
}

// windowOf returns the window of a share that contains a time of the store, in microseconds since 1970; zeros for a bucket.
func windowOf(c *headgate.Charge, at time.Time) (start, end int64) {
	if c.Limit.Algorithm == headgate.TokenBucket {
		return 0, 0
	}
	terms, _ := c.Terms(at)
	return terms.Start, terms.End
}
