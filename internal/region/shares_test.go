package region

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestEpoch checks that regions with other members, weights or secrets have other epochs, and that the order of the members is irrelevant.
func TestEpoch(t *testing.T) {
	members := []Member{{"eu", 2}, {"us", 1}}
	same := NewShares(members, "eu").Epoch()
	if got := NewShares([]Member{{"us", 1}, {"eu", 2}}, "us").WithSecret(nil).Epoch(); got != same {
		t.Error("the epoch depends on the order of the members, or on the own region")
	}
	seen := map[uint64]string{same: "the same"}
	for name, s := range map[string]*Shares{
		"weights":        NewShares([]Member{{"eu", 1}, {"us", 1}}, "eu"),
		"members":        NewShares([]Member{{"eu", 2}, {"ap", 1}}, "eu"),
		"secret":         NewShares(members, "eu").WithSecret([]byte("a")),
		"another secret": NewShares(members, "eu").WithSecret([]byte("b")),
	} {
		if other, known := seen[s.Epoch()]; known {
			t.Errorf("%s and %s have one epoch", name, other)
		}
		seen[s.Epoch()] = name
	}
}

// TestChangedWhileDeciding charges shares that were determined before the weights changed.
func TestChangedWhileDeciding(t *testing.T) {
	whole := headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 900, Window: time.Hour}
	for name, test := range map[string]struct{ weight, granted int64 }{"less": {1, 90}, "nothing": {0, 0}, "more, which is not in force": {9, 300}} {
		t.Run(name, func(t *testing.T) {
			store := newPlain(t)
			shares := store.lender.shares
			charges := []headgate.Charge{{Subject: simSubject, Counter: simCounter, Limit: shares.Share(simSubject, &whole), Whole: whole, Cost: 900, AtLeast: 1}}
			before := charges[0]
			shares.use([]table{{Serial: 1, Weights: map[string]int64{"ap": 0, "eu": test.weight, "us": 10 - test.weight}}}, 1)
			var results [1]headgate.Result
			err := store.Take(t.Context(), charges, results[:])
			if results[0].Granted != test.granted {
				t.Errorf("%d units granted, want %d", results[0].Granted, test.granted)
			}
			if denied := errors.Is(err, headgate.ErrUnavailable); denied != (test.weight == 0) || !errors.Is(results[0].Err, err) {
				t.Errorf("error %v, of the charge %v", err, results[0].Err)
			}
			if charges[0] != before {
				t.Errorf("the caller's charge was changed to %+v", charges[0])
			}
		})
	}
}
