package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
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

// runSoak breaks Redis again and again in turn under nodes that stay, and sees whether they grow.
func runSoak(ctx context.Context, program string, length time.Duration) (failed int, err error) {
	scope := &paired.Scope{}
	defer scope.Close()
	w := &world{ctx: ctx, scope: scope, program: program, rate: usualRate}
	// The garbage collector lets servers grow to 130 MB before it runs for the first time. So it shows sooner what stays.
	w.prefix = []string{"env", "GOGC=25"}
	if err := behindProxy(w); err != nil {
		return 0, err
	}
	if err := w.startNodes(); err != nil {
		return 0, err
	}
	stop := w.begin(time.Now(), 0)
	first, last, err := w.soak(length)
	stop()
	if err != nil {
		return 0, err
	}
	var v verdicts
	for i, s := range sizes {
		for n := range w.nodes {
			v.say(last[n][i] <= 1.1*first[n][i]+s.forgive, "node %d, %s: %.0f, then %.0f", n+1, s.name, first[n][i], last[n][i])
		}
	}
	var errors int
	for _, s := range w.load.taken() {
		errors += count(s.Status != 200)
	}
	v.say(errors == 0, "requests without a decision: %d", errors)
	return v.failed, nil
}

// soak returns the nodes' sizes after two minutes, or a third of the time, and in the end.
func (w *world) soak(length time.Duration) (first, last [][]float64, err error) {
	start := time.Now()
	next := time.Duration(0)
	ways := []func() error{w.soakKill, w.soakPause, w.soakReset}
	for turn := 0; time.Since(start) < length; turn++ {
		if err := ways[turn%len(ways)](); err != nil {
			return nil, nil, err
		}
		if w.sleep(soakCalm); w.ctx.Err() != nil {
			return nil, nil, w.ctx.Err()
		}
		if last, err = w.nodeSizes(); err != nil {
			return nil, nil, err
		}
		gone := time.Since(start)
		if first == nil && gone >= min(2*time.Minute, length/3) {
			first = last
		}
		if gone >= next || gone >= length {
			fmt.Printf("%4.0f s  %s\n", gone.Seconds(), sizesText(last))
			next = gone.Truncate(time.Minute) + time.Minute
		}
	}
	return first, last, nil
}

func (w *world) soakKill() error {
	w.redis.Kill()
	w.sleep(soakFault)
	w.redis.Restart(w.scope)
	return nil
}

func (w *world) soakPause() error {
	w.redis.Pause()
	w.sleep(soakFault)
	w.redis.Resume()
	return nil
}

func (w *world) soakReset() error { return w.every(cutEvery, soakFault, w.cut) }

// nodeSizes are by node, in the order of sizes.
func (w *world) nodeSizes() (all [][]float64, err error) {
	for _, n := range w.nodes {
		var of []float64
		for _, s := range sizes {
			value, err := n.metric(w.ctx, s.metric)
			if err != nil {
				return nil, err
			}
			of = append(of, value/s.unit)
		}
		all = append(all, of)
	}
	return all, nil
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
