package adminapi

import (
	"strconv"
	"strings"
	"testing"
)

func TestUnguessable(t *testing.T) {
	t.Parallel()
	ours, _, err := NewToken("ann")
	if err != nil {
		t.Fatal(err)
	}
	random := strings.Repeat("A", 43)
	for token, want := range map[string]bool{
		ours: true, "eyJhbGciOiJFUzI1NiJ9.e30." + random: true,
		"": false, "hunter2": false, "hgt_": false, "hgt_guess": false, ours[:len(ours)-1]: false, "1.2.3": false, "a.b." + random[1:]: false,
		"a.b.c." + random: false, "hgt_" + random[1:] + "!": false, random: false,
	} {
		if got := unguessable(token); got != want {
			t.Errorf("%q: %v", token, got)
		}
	}
}

// The set of admitted tokens is bounded, and never has guessable tokens.
func TestAdmitted(t *testing.T) {
	t.Parallel()
	var a admitted
	token := func(n int) string {
		digits := strconv.Itoa(n)
		return tokenPrefix + strings.Repeat("A", 42-len(digits)) + digits + "A"
	}
	a.add("hunter2")
	if a.has("hunter2") || len(a.sums) != 0 {
		t.Error("a guessable token was added")
	}
	for i := range 3 * maxAdmitted {
		if a.add(token(i)); !a.has(token(i)) || len(a.sums) > maxAdmitted {
			t.Fatalf("%d: %v, %d tokens", i, a.has(token(i)), len(a.sums))
		}
	}
	last := token(3*maxAdmitted - 1)
	if a.remove(last); a.has(last) {
		t.Error("a removed token is still in the set")
	}
}
