package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/peer"
	"github.com/headgate/headgate/memstore"
)

// memory measures decisions in memory, for orientation.
func (b *bench) memory() {
	store, ours := b.open(), memstore.New(memstore.Options{MaxEntries: 2 * subjects})
	libraries := []struct {
		name string
		call peer.Library
	}{
		{"x/time/rate in a sync.Map", peer.Rate()},
		{"sethvargo/go-limiter", peer.GoLimiter(b)},
		{"throttled", peer.Throttled(b)},
		{"ulule/limiter", peer.UluleMemory()},
		{"headgate.Take, memstore", func(key string) error {
			r, err := headgate.Take(context.Background(), ours, plenty, "string", key)
			return peer.ErrorUnlessAllowed(r.Allowed, err)
		}},
	}
	one := []int32{0}
	var variants []paired.Variant
	add := func(name string, draw func(from []int32) do) {
		variants = append(variants, paired.Variant{Name: name + ", zipf", Callers: 1, Do: draw(b.draws.all)},
			paired.Variant{Name: name + ", one key", Callers: 1, Do: draw(one)})
	}
	for _, w := range libraries {
		add(w.name, func(from []int32) do {
			return func(caller, n int) error { return w.call(b.draws.keys[next(from, caller, n)]) }
		})
	}
	var ignored tally
	add("memstore, subject known", func(from []int32) do {
		return b.takes(ours, from, charge("memory", plenty), "", &ignored)
	})
	leased := b.takes(store, one, charge("one", plenty), headgate.PathLease, &ignored)
	variants = append(variants, paired.Variant{Name: "leased, subject known, one key", Callers: 1, Do: leased})
	b.Measure(fmt.Sprintf("in memory, 1 caller, %d subjects; no targets", subjects), b.Rounds, max(b.Slice/5, 10*time.Millisecond), variants)
}
