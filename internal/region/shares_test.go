package region

import "testing"

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
