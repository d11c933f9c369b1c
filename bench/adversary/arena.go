package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// scenario is one attack. It fills a world with records, and says in the world's header what is to be judged.
type scenario struct {
	name string
	run  func(*world) error
	// served says that it needs the server's program.
	served bool
}

// scenarios returns all of them, in the order in which they run.
func scenarios() []scenario {
	return []scenario{
		{name: "callers", run: callers, served: true},
		{name: "burst", run: burst},
		{name: "own", run: own},
		{name: "waits", run: waits, served: true},
		{name: "stalls", run: stalls},
		{name: "outage", run: outage, served: true},
		{name: "contention", run: contention},
		{name: "kills", run: kills},
		{name: "change", run: change},
		{name: "reservations", run: reservations},
	}
}

// arena is where scenarios run, one after the other.
type arena struct {
	options *options
	scope   paired.Scope
	// headgate returns the path of the server's program. It is built once, while the first scenarios run.
	headgate func() string
	building sync.WaitGroup
}

func newArena(o *options, chosen []scenario) *arena {
	a := &arena{options: o}
	a.headgate = sync.OnceValue(func() string { return testenv.BuildHeadgate(&a.scope) })
	if slices.ContainsFunc(chosen, func(s scenario) bool { return s.served }) {
		a.building.Go(func() { a.headgate() })
	}
	return a
}

func (a *arena) close() {
	a.building.Wait()
	a.scope.Close()
}

// attack runs one scenario, writes its history, and judges what was written.
func (a *arena) attack(ctx context.Context, s scenario, seed uint64) (findings int, err error) {
	began := time.Now()
	name := fnv.New64()
	_, _ = name.Write([]byte(s.name))
	w := &world{
		arena: a, ctx: ctx, short: a.options.short, rand: rand.New(rand.NewPCG(seed, name.Sum64())),
		header: judge.Header{Scenario: s.name, Seed: seed},
	}
	err = s.run(w)
	if err == nil {
		err = w.collect()
	}
	w.scope.Close()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	path := filepath.Join(a.options.out, s.name+".jsonl")
	if err := judge.Write(path, w.header, w.records); err != nil {
		return 0, err
	}
	header, records, err := judge.Read(path)
	if err != nil {
		return 0, err
	}
	verdict := judge.Judge(header, records)
	report(s.name, seed, time.Since(began), &verdict)
	if len(verdict.Findings) == 0 {
		return 0, nil // the next run may overwrite it
	}
	found := filepath.Join(a.options.out, fmt.Sprintf("%s-%d.jsonl", s.name, seed))
	fmt.Printf("     history: %s\n", found)
	return len(verdict.Findings), os.Rename(path, found)
}

// world is what one scenario attacks: stores, nodes and the records of what their callers saw.
type world struct {
	*arena
	ctx    context.Context //nolint:containedctx // it is that of one run, which this is
	scope  paired.Scope
	short  bool
	rand   *rand.Rand
	header judge.Header

	mu      sync.Mutex
	records []judge.Record
	workers []*worker
}

// some returns a number for short runs or for full ones.
func (w *world) some(short, full int) int {
	if w.short {
		return short
	}
	return full
}

// limits adds limits to the header and returns the index of the first.
func (w *world) limits(limits ...judge.Limit) (first int) {
	first = len(w.header.Limits)
	w.header.Limits = append(w.header.Limits, limits...)
	return first
}

// judge adds checks to the header.
func (w *world) judge(checks ...judge.Check) { w.header.Checks = append(w.header.Checks, checks...) }

// keep records what the caller of a node saw.
func (w *world) keep(records ...judge.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, records...)
}

// event records something that was done between two times.
func (w *world) event(note string, process int, subject string, began time.Time) {
	w.keep(judge.Record{
		Op: judge.OpEvent, Note: note, Process: process, Subject: subject, Sent: began.UnixMicro(), Answered: time.Now().UnixMicro(),
	})
}

// redis starts a server of its own and returns it with its address for nodes.
func (w *world) redis(extra ...string) (*testenv.Server, string) {
	s := testenv.Start(&w.scope, testenv.Redis, extra...)
	return s, "redis://" + s.Addr()
}

// sleep ends early with the run.
func (w *world) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// collect ends the workers and reads what they have recorded.
func (w *world) collect() error {
	_ = together(w.workers, func(_ int, k *worker) error {
		k.quit()
		return nil
	})
	for _, k := range w.workers {
		records, err := judge.ReadRecords(k.spec.Out)
		if err != nil {
			return fmt.Errorf("worker %d: %w", k.spec.Process, err)
		}
		w.records = append(w.records, records...)
	}
	return nil
}
