package region

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// failingStore fails the calls from a number on.
type failingStore struct {
	headgate.Store
	calls, failFrom int
}

func (f *failingStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if f.calls++; f.failFrom > 0 && f.calls >= f.failFrom {
		return errors.New("down")
	}
	return f.Store.Take(ctx, charges, results)
}

// TestLend answers loan requests, valid ones and others, and compares what the lender's counter was charged with.
func TestLend(t *testing.T) {
	members := []Member{{"eu", 1}, {"us", 1}}
	limit := headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 1000, Window: time.Hour}
	now := time.Unix(2_000_000_000, 0).Truncate(time.Hour).Add(time.Minute)
	valid := LoanRequest{
		From: "us", Epoch: NewShares(members, "us").Epoch(), Subject: simSubject, Counter: simCounter, Whole: limit,
		Window: now.Truncate(time.Hour).UnixMicro(), Units: 100,
	}
	tests := map[string]struct {
		change  func(*LoanRequest)
		prepare func(*lender) // before the request
		want    Loan
		charged int64
	}{
		"lent":                {want: Loan{Units: 100, Left: 369}, charged: 100}, // a 16th of the share is kept
		"more than there is":  {change: func(r *LoanRequest) { r.Units = headgate.MaxCost }, want: Loan{Units: 469}, charged: 469},
		"other members":       {change: func(r *LoanRequest) { r.Epoch++ }, want: Loan{Rejection: OtherMembers}},
		"earlier window":      {change: func(r *LoanRequest) { r.Window -= 3600e6 }, want: Loan{Rejection: OtherWindow}},
		"later window":        {change: func(r *LoanRequest) { r.Window += 3600e6 }, want: Loan{Rejection: OtherWindow}},
		"window off by a bit": {change: func(r *LoanRequest) { r.Window++ }, want: Loan{Rejection: OtherWindow}},
		"no units":            {change: func(r *LoanRequest) { r.Units = 0 }, want: Loan{Rejection: Unlendable}},
		"negative":            {change: func(r *LoanRequest) { r.Units = -5 }, want: Loan{Rejection: Unlendable}},
		"too many":            {change: func(r *LoanRequest) { r.Units = headgate.MaxCost + 1 }, want: Loan{Rejection: Unlendable}},
		"no limit":            {change: func(r *LoanRequest) { r.Whole = headgate.Limit{} }, want: Loan{Rejection: Unlendable}},
		"no window":           {change: func(r *LoanRequest) { r.Whole.Window = 0 }, want: Loan{Rejection: Unlendable}},
		"concurrency":         {change: func(r *LoanRequest) { r.Whole = headgate.Concurrent(1000) }, want: Loan{Rejection: Unlendable}},
		"a log":               {change: func(r *LoanRequest) { r.Whole.Algorithm, r.Whole.Align = headgate.SlidingLog, 0 }, want: Loan{Rejection: Unlendable}},
		"a share without units": {
			change: func(r *LoanRequest) { r.Whole = headgate.Limit{Count: 1000, Window: time.Second, Burst: 1} },
			want:   Loan{Rejection: NoUnits},
		},
		"the lender borrows itself": {
			prepare: func(l *lender) { take(t, l, permitOf(simSubject, simCounter, limit)) }, want: Loan{Rejection: Borrowing},
		},
		"used up": {
			prepare: func(l *lender) {
				take(t, l, headgate.Charge{Subject: simSubject, Counter: simCounter, Limit: l.shares.Share(simSubject, &limit), Cost: 500})
			},
			want: Loan{Rejection: NoUnits}, charged: 500,
		},
		"the store fails":            {prepare: func(l *lender) { failFrom(l, 1) }, want: Loan{Rejection: StoreUnavailable}},
		"the store fails in between": {prepare: func(l *lender) { failFrom(l, 2) }, want: Loan{Rejection: StoreUnavailable}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			memory := memstore.New(memstore.Options{Clock: func() time.Time { return now }})
			l := &lender{store: &failingStore{Store: memory}, shares: NewShares(members, "eu"), stats: &stats{}}
			if test.prepare != nil {
				test.prepare(l)
			}
			req := valid
			if test.change != nil {
				test.change(&req)
			}
			if got := l.lend(context.Background(), &req, nil); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			share := l.shares.Share(simSubject, &limit)
			l.store = memory
			r := take(t, l, headgate.Charge{Subject: simSubject, Counter: simCounter, Limit: share})
			if charged := share.Count - r.Remaining; charged != test.charged {
				t.Errorf("%d units charged, want %d", charged, test.charged)
			}
		})
	}
}

// permitOf returns a charge that takes the permit to borrow units of a counter.
func permitOf(subject headgate.Subject, counter headgate.Counter, limit headgate.Limit) headgate.Charge {
	c := permitCharge(&headgate.Charge{Subject: subject, Counter: counter, Limit: limit})
	c.Cost = 1
	return c
}

func take(t *testing.T, l *lender, c headgate.Charge) headgate.Result {
	t.Helper()
	var results [1]headgate.Result
	if err := l.store.Take(context.Background(), []headgate.Charge{c}, results[:]); err != nil {
		t.Fatal(err)
	}
	return results[0]
}

// failFrom makes the lender's store fail from the given call on.
func failFrom(l *lender, call int) {
	if f, ok := l.store.(*failingStore); ok {
		f.failFrom = call
	}
}
