package explain

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 s", time.Millisecond: "1 s", 22*time.Second + 1: "23 s", 2 * time.Minute: "2 min 0 s",
		150 * time.Minute: "2 h 30 min", 52 * time.Hour: "2 d 4 h",
	} {
		if got := span(d); got != want {
			t.Errorf("%s is %q, not %q", d, got, want)
		}
	}
}
