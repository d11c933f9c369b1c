package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	soakFault = 3 * time.Second
	soakCalm  = 7 * time.Second
)

// size is what must not grow. The names are those of the metrics, the number how much more than a tenth is forgiven.
var sizes = []struct {
	name, metric  string
	unit, forgive float64
}{
	{"goroutines", "go_goroutines", 1, 20},
	{"descriptors", "process_open_fds", 1, 20},
	{"MB", "process_resident_memory_bytes", 1e6, 20},
}

// soak breaks Redis again and again in turn under nodes that stay, and sees whether they grow.
func (w *world) soak(length time.Duration) (missed int) {
	// The garbage collector lets servers grow to 130 MB before it runs for the first time. So it shows sooner what stays.
	w.prefix = []string{"env", "GOGC=25"}
	behindProxy(w)
	startNodes(w)
	stop := w.begin(time.Now(), 0)
	first, last := w.sizesIn(length)
	stop()
	r := suite.NewReport()
	for i, s := range sizes {
		for n := range w.nodes {
			r.Line(fmt.Sprintf("node %d, %s", n+1, s.name),
				suite.Judged(last[n][i] <= 1.1*first[n][i]+s.forgive, "%.0f, then %.0f", first[n][i], last[n][i]))
		}
	}
	var errors int
	for _, s := range w.load.taken() {
		errors += count(s.Status != 200)
	}
	r.Line("requests without a decision", suite.Judged(errors == 0, "%d", errors))
	return r.Missed
}

// sizesIn returns the nodes' sizes after two minutes, or a third of the time, and in the end.
func (w *world) sizesIn(length time.Duration) (first, last [][]float64) {
	start := time.Now()
	next := time.Duration(0)
	ways := []func(){
		func() {
			w.redis.Kill()
			w.Sleep(soakFault)
			w.redis.Restart(w)
		},
		func() {
			w.redis.Pause()
			w.Sleep(soakFault)
			w.redis.Resume()
		},
		func() { w.every(cutEvery, soakFault, w.cut) },
	}
	for turn := 0; time.Since(start) < length; turn++ {
		ways[turn%len(ways)]()
		w.Sleep(soakCalm)
		testenv.NoError(w, w.Context().Err())
		last = w.nodeSizes()
		gone := time.Since(start)
		if first == nil && gone >= min(2*time.Minute, length/3) {
			first = last
		}
		if gone >= next || gone >= length {
			w.Logf("%4.0f s  %s", gone.Seconds(), sizesText(last))
			next = gone.Truncate(time.Minute) + time.Minute
		}
	}
	return first, last
}

// nodeSizes are by node, in the order of sizes.
func (w *world) nodeSizes() (all [][]float64) {
	for _, n := range w.nodes {
		var of []float64
		for _, s := range sizes {
			of = append(of, w.metric(n, s.metric)/s.unit)
		}
		all = append(all, of)
	}
	return all
}

func sizesText(all [][]float64) string {
	var parts []string
	for i, s := range sizes {
		var values []string
		for _, of := range all {
			values = append(values, fmt.Sprintf("%.0f", of[i]))
		}
		parts = append(parts, s.name+" "+strings.Join(values, " "))
	}
	return strings.Join(parts, ", ")
}
