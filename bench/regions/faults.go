package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/bench/internal/regionjudge"
)

// cut cuts a region off: what it sends is lost (1), what it would receive (2), or both (3).
type cut struct{ region, directions int }

func (c cut) String() string {
	return fmt.Sprintf("%s %s", names[c.region], [...]string{"sends into the void", "receives nothing", "is cut off"}[c.directions-1])
}

// links calls do with the directions that are cut.
func (c cut) links(do func(from, to string)) {
	for i, other := range names {
		if i == c.region {
			continue
		}
		if c.directions&1 > 0 {
			do(names[c.region], other)
		}
		if c.directions&2 > 0 {
			do(other, names[c.region])
		}
	}
}

func (c cut) begin(w *world) { c.links(w.network.Cut) }
func (c cut) end(w *world)   { c.links(w.network.Join) }

// disturb makes all links lose and duplicate packets.
func (w *world) disturb(loss, duplication float64) {
	for _, from := range names {
		for _, to := range names {
			if from != to {
				w.network.SetLoss(from, to, loss)
				w.network.SetDuplication(from, to, duplication)
			}
		}
	}
}

// slowDown multiplies the delays of all links.
func (w *world) slowDown(factor float64) {
	for _, from := range names {
		for _, to := range names {
			if from != to {
				w.network.SetDelay(from, to, time.Duration(factor*float64(oneWay(from, to))))
			}
		}
	}
}

// killServer kills a server and restarts it.
func (w *world) killServer(region, number int) {
	n := w.regions[region].nodes[number]
	n.Kill()
	w.Sleep(time.Second / 2)
	n.Start()
}

// killStore kills a store, which then restarts or fails over.
func (w *world) killStore(region int) {
	r := w.regions[region]
	l := regionjudge.Loss{Region: r.name, From: time.Now().UnixMicro()}
	restore := r.store.kill(w.Scope, rand.New(rand.NewPCG(w.plan.seed, killStream)))
	l.To = time.Now().UnixMicro()
	w.losses = append(w.losses, l)
	restore()
}
