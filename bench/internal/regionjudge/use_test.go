package regionjudge

import (
	"testing"
)

func TestUse(t *testing.T) {
	h := newHistory(window(10))
	// One counter admits the first seven requests, of which regions denied two.
	for i := range int64(4) {
		h.add("eu", i*ms, 1)
	}
	for i := range int64(3) {
		h.add("us", (10+i)*ms, 2).Allowed = i == 0
	}
	h.add("ap", 20*ms, 5).Allowed = false
	h.add("ap", 21*ms, 3).Path = pathLocal
	h.add("ap", 22*ms, 1).Allowed = false // the regions have a unit left, but one counter has none
	// The second window is another phase.
	h.add("eu", 4*second, 3).Allowed = false
	failed := h.add("eu", 4*second+ms, 3)
	failed.Allowed, failed.Path = false, ""
	uses := h.Uses([]int64{start - second, start + 3*second})
	want := []Use{
		{Requests: 10, Admitted: 9, Ideal: 10, FalseDenials: 2, Local: 1},
		{Requests: 1, Failed: 1, Ideal: 3, FalseDenials: 1},
	}
	for i := range want {
		if uses[i] != want[i] {
			t.Errorf("phase %d: %+v, want %+v", i, uses[i], want[i])
		}
	}
	if got := uses[0].Utilisation(); got != 0.9 {
		t.Errorf("utilisation %v, want 0.9", got)
	}
	if got := uses[1].FalselyDenied(); got != 1 {
		t.Errorf("falsely denied %v, want 1", got)
	}
}

// TestUseOfWindowsNotOnTheClock replays windows that begin when the stores say.
func TestUseOfWindowsNotOnTheClock(t *testing.T) {
	h := newHistory(window(10))
	for _, at := range []int64{2 * second, 4*second + second/2} {
		h.add("eu", at, 10).Reset = start + 5*second // so the window began a second after a multiple of its length
	}
	if u := h.Uses([]int64{start})[0]; u.Ideal != 10 {
		t.Errorf("%+v: one window admits 10", u)
	}
}
