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

// memory is for orientation: what a decision costs without Redis.
func (s *suite) memory() error {
	store, err := s.open()
	if err != nil {
		return err
	}
	ours := memstore.New(memstore.Options{MaxEntries: 2 * subjects})
	golimiter, err := peer.GoLimiter(s.scope)
	if err != nil {
		return err
	}
	throttled, err := peer.Throttled()
	if err != nil {
		return err
	}
	ways := []struct {
		name string
		ask  peer.Library
	}{
		{"x/time/rate in a sync.Map", peer.Rate()},
		{"sethvargo/go-limiter", golimiter},
		{"throttled", throttled},
		{"ulule/limiter", peer.UluleMemory()},
		{"headgate.Take, memstore", func(key string) error {
			r, err := headgate.Take(context.Background(), ours, plenty, "string", key)
			if err == nil && !r.Allowed {
				err = errRefused
			}
			return err
		}},
	}
	one := []int32{0}
	var variants []paired.Variant
	add := func(name string, asks func(from []int32) do) {
		variants = append(variants, paired.Variant{Name: name + ", zipf", Callers: 1, Do: asks(s.draws.all)},
			paired.Variant{Name: name + ", one key", Callers: 1, Do: asks(one)})
	}
	for _, w := range ways {
		add(w.name, func(from []int32) do {
			return func(caller, n int) error { return w.ask(s.draws.keys[next(from, caller, n)]) }
		})
	}
	var ignored tally
	add("memstore, subject known", func(from []int32) do {
		return s.takes(ours, from, charge("memory", plenty), "", &ignored)
	})
	leased := s.takes(store, one, charge("one", plenty), headgate.PathLease, &ignored)
	variants = append(variants, paired.Variant{Name: "leased, subject known, one key", Callers: 1, Do: leased})
	title := fmt.Sprintf("in memory, 1 caller, %d subjects; no aims", subjects)
	_, err = s.measure(title, max(s.slice/5, 10*time.Millisecond), variants)
	return err
}
