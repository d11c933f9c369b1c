package main

import (
	"math/rand/v2"
	"strconv"

	"github.com/headgate/headgate"
)

// Subjects are drawn by zipf (1.1). The hot ones are busy enough to be leased.
const (
	subjects = 100_000
	hot      = 1_000
)

// draws is a precomputed sequence of subjects.
type draws struct {
	keys []string
	ids  []headgate.Subject
	all  []int32
	hot  []int32 // only the hot ones
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

// next returns the subject of a call. Every caller and every round starts elsewhere in the sequence.
func next(from []int32, caller, n int) int32 {
	return from[(n+(n>>32)*104_729+caller*16_411)%len(from)]
}

// tally counts local decisions, for each caller, in measured slices.
type tally [callers]struct {
	local, all int64
	_          [48]byte // padding against false sharing
}

func (t *tally) note(caller, n int, local bool) {
	if n>>32 == 0 || n>>52 > 0 { // warm-up
		return
	}
	t[caller].all++
	if local {
		t[caller].local++
	}
}

// share returns the percentage of local decisions.
func (t *tally) share() float64 {
	var local, all int64
	for i := range t {
		local, all = local+t[i].local, all+t[i].all
	}
	return 100 * float64(local) / float64(max(1, all))
}
