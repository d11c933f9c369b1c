package client

import (
	"testing"
	"time"
)

func TestNextBackoff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ last, lived, want time.Duration }{
		{minBackoff / 2, 0, minBackoff},
		{minBackoff, 0, 2 * minBackoff},
		{maxBackoff, 0, maxBackoff},
		{maxBackoff, maxBackoff / 2, maxBackoff}, // flapping
		{maxBackoff / 2, maxBackoff, minBackoff}, // was available
	} {
		if got := nextBackoff(c.last, c.lived); got != c.want {
			t.Errorf("after a backoff of %v and %v with a link: %v, want %v", c.last, c.lived, got, c.want)
		}
	}
}
