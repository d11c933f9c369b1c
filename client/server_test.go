package client

import (
	"testing"
	"time"
)

func TestNextPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ last, lived, want time.Duration }{
		{minPause / 2, 0, minPause},
		{minPause, 0, 2 * minPause},
		{maxPause, 0, maxPause},
		{maxPause, maxPause / 2, maxPause}, // it goes up and down
		{maxPause / 2, maxPause, minPause}, // it was there
	} {
		if got := nextPause(c.last, c.lived); got != c.want {
			t.Errorf("after a pause of %v and %v with a link: %v, not %v", c.last, c.lived, got, c.want)
		}
	}
}
