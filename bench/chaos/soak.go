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

// sizes are the metrics that must not grow by more than a tenth plus tolerance.
var sizes = []struct {
	name, metric    string
	unit, tolerance float64
}{
	{"goroutines", "go_goroutines", 1, 20},
	{"descriptors", "process_open_fds", 1, 20},
	{"MB", "process_resident_memory_bytes", 1e6, 20},
}

// patience is how long callers wait for a response. A machine that stalls delays responses, but must not lose any.
const patience = 30 * time.Second

// soak repeatedly breaks Redis under the same nodes and checks whether they grow.
func (w *world) soak(length time.Duration) (missed int) {
	// With the default GOGC servers grow to 130 MB before the first collection. A low one shows leaks sooner.
	w.prefix = []string{"env", "GOGC=25"}
	behindProxy(w)
	startNodes(w)
	for _, n := range w.nodes {
		n.Client.Timeout = patience
	}
	first, last, lost := w.sizesIn(length)
	r := suite.NewReport()
	for i, s := range sizes {
		for n := range w.nodes {
			r.Line(fmt.Sprintf("node %d, %s", n+1, s.name),
				suite.Judged(last[n][i] <= 1.1*first[n][i]+s.tolerance, "%.0f, then %.0f", first[n][i], last[n][i]))
		}
	}
	r.Line("requests without a decision", suite.Judged(lost == 0, "%d", lost))
	return r.Missed
}

// sizesIn injects faults under load. It returns the nodes' sizes after two minutes, or a third of length, and at the end, and the
// number of requests that were sent and got no decision.
func (w *world) sizesIn(length time.Duration) (first, last [][]float64, lost int) {
	start := time.Now()
	next := time.Duration(0)
	faultFuncs := []func(){
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
		stop := w.begin(time.Now(), 0)
		faultFuncs[turn%len(faultFuncs)]()
		w.Sleep(soakCalm)
		stop()
		testenv.NoError(w, w.Context().Err())
		for _, s := range w.load.sorted() {
			lost += boolToInt(s.Sent && s.Status != 200)
		}
		last = w.idleSizes()
		elapsed := time.Since(start)
		if first == nil && elapsed >= min(2*time.Minute, length/3) {
			first = last
		}
		if elapsed >= next || elapsed >= length {
			w.Logf("%4.0f s  %s", elapsed.Seconds(), sizesText(last))
			next = elapsed.Truncate(time.Minute) + time.Minute
		}
	}
	return first, last, lost
}

// idleSizes returns the nodes' sizes once their callers are gone. The more a machine stalls, the more connections the load
// opens, and these are not growth of the server.
func (w *world) idleSizes() [][]float64 {
	for _, n := range w.nodes {
		n.Client.CloseIdleConnections()
	}
	w.Sleep(time.Second)
	return w.nodeSizes()
}

// nodeSizes returns the current sizes by node, in the order of sizes.
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
