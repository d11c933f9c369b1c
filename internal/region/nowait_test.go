package region

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// deaf is a peer that does not respond.
type deaf struct{ requests *int }

func (d deaf) Lend(ctx context.Context, _ LoanRequest) (Loan, error) {
	*d.requests++
	<-ctx.Done()
	return Loan{}, ctx.Err()
}

// TestNoWait counts the charges that wait for a peer, while the peers do not respond. In virtual time, a charge that does not wait takes no
// time at all.
func TestNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{scenario: &scenario{nodes: 1}}
		shared := &simRegion{world: w}
		shared.open(0)
		shares := NewShares([]Member{{"eu", 1}, {"us", 1}}, "eu")
		requests, waited := 0, 0
		s := New(simStore{shared, 1}, shares, map[string]Link{"us": deaf{&requests}})
		defer s.Close()
		whole := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Window: time.Minute}
		c := headgate.Charge{Subject: simSubject, Counter: simCounter, Limit: shares.Share(simSubject, &whole), Whole: whole, Cost: 1}
		for range 3_000 {
			before := time.Now()
			var results [1]headgate.Result
			if err := s.Take(context.WithValue(context.Background(), requestKey{}, true), []headgate.Charge{c}, results[:]); err != nil {
				t.Fatal(err)
			}
			if time.Since(before) > 0 {
				waited++
			}
			time.Sleep(20 * time.Millisecond)
		}
		if waited > 0 || requests == 0 {
			t.Errorf("%d charges waited, during %d loan requests without a response", waited, requests)
		}
	})
}
