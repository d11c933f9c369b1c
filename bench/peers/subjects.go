package main

import (
	"math/rand/v2"
	"strconv"

	"github.com/headgate/headgate"
)

// Who asks: 100,000 by zipf (1.1). Of those the first ones are asked for often enough for their units to be leased.
const (
	subjects = 100_000
	hot      = 1_000
)

// draws are who asks, in turn.
type draws struct {
	keys []string
	ids  []headgate.Subject
	all  []int32
	hot  []int32 // the same without those that are not
}

func newDraws() draws {
	d := draws{keys: make([]string, subjects), ids: make([]headgate.Subject, subjects)}
	for i := range d.keys {
		d.keys[i] = "user-" + strconv.Itoa(i)
		d.ids[i] = headgate.SubjectOf(d.keys[i])
	}
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, subjects-1)
	for len(d.hot) < 1<<20 {
		n := int32(zipf.Uint64())
		d.all = append(d.all, n)
		if n < hot {
			d.hot = append(d.hot, n)
		}
	}
	d.all = d.all[:1<<20]
	return d
}

// next is who asks; every caller, and every round, begins elsewhere.
func next(from []int32, caller, n int) int32 {
	return from[(n+(n>>32)*104_729+caller*16_411)%len(from)]
}

// tally counts who decided, for each caller, in the slices that are measured.
type tally [callers]struct {
	here, all int64
	_         [48]byte // callers must not slow each other down
}

func (t *tally) note(caller, n int, here bool) {
	if n>>32 == 0 || n>>52 > 0 { // which warms up, and is not measured
		return
	}
	t[caller].all++
	if here {
		t[caller].here++
	}
}

// share is how many percent were decided here.
func (t *tally) share() float64 {
	var here, all int64
	for i := range t {
		here, all = here+t[i].here, all+t[i].all
	}
	return 100 * float64(here) / float64(max(1, all))
}
