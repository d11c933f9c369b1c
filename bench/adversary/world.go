package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// scenario is one attack. It fills a world with records and adds the checks to judge to the world's header.
type scenario struct {
	name string
	run  func(*world)
	// served is whether the scenario needs the headgate binary.
	served bool
}

// scenarios returns all scenarios, in the order in which they run.
func scenarios() []scenario {
	return []scenario{
		{name: "callers", run: callers, served: true},
		{name: "burst", run: burst},
		{name: "claims", run: claims},
		{name: "waits", run: waits, served: true},
		{name: "stalls", run: stalls},
		{name: "outage", run: outage, served: true},
		{name: "contention", run: contention},
		{name: "kills", run: kills},
		{name: "change", run: change},
		{name: "reservations", run: reservations},
		{name: "budgets", run: budgets, served: true},
		{name: "slots", run: slots},
	}
}

// out is the directory for histories.
var out = filepath.Join("out", "adversary")

// attack runs one scenario, writes its history and judges it.
func attack(scope *suite.Scope, s scenario, seed uint64, short bool, headgate func() string) (findings int) {
	began := time.Now()
	name := fnv.New64()
	_, _ = name.Write([]byte(s.name))
	w := &world{
		short: short, headgate: headgate, rand: rand.New(rand.NewPCG(seed, name.Sum64())),
		header: judge.Header{Scenario: s.name, Seed: seed},
	}
	err := scope.Run(func(own *suite.Scope) {
		w.Scope = own
		s.run(w)
		w.collect()
	})
	if err != nil {
		scope.Fatalf("%s, seed %d: %v", s.name, seed, err)
	}
	path := filepath.Join(out, s.name+".jsonl")
	testenv.NoError(scope, judge.Write(path, w.header, w.records))
	if findings = judgeFile(scope, path, time.Since(began)); findings > 0 { // keep it: the next run overwrites path
		found := filepath.Join(out, fmt.Sprintf("%s-%d.jsonl", s.name, seed))
		fmt.Printf("     history: %s\n", found)
		testenv.NoError(scope, os.Rename(path, found))
	}
	return findings
}

// world is the environment of one scenario: stores, nodes and the records of their callers.
type world struct {
	*suite.Scope
	// headgate returns the path of the headgate binary, which is built once, while the first scenarios run.
	headgate func() string
	short    bool
	rand     *rand.Rand
	header   judge.Header

	mu      sync.Mutex
	records []judge.Record
	workers []*worker
}

// some returns short in short runs and full otherwise.
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

// addRecords adds records to the history.
func (w *world) addRecords(records ...judge.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, records...)
}

// event records an event that began at a time and has just ended.
func (w *world) event(began time.Time, e judge.Record) {
	e.Op, e.Sent, e.Received = judge.OpEvent, began.UnixMicro(), time.Now().UnixMicro()
	w.addRecords(e)
}

// redis starts a Redis server and returns it with its address for nodes.
func (w *world) redis(extra ...string) (*testenv.Server, string) {
	s := testenv.Start(w, testenv.Redis, extra...)
	return s, "redis://" + s.Addr()
}

// collect ends the workers and reads their records.
func (w *world) collect() {
	_ = forEachWorker(w.workers, func(_ int, k *worker) error {
		k.quit()
		return nil
	})
	for _, k := range w.workers {
		records, err := judge.ReadRecords(k.spec.Out)
		testenv.NoError(w, err)
		w.records = append(w.records, records...)
	}
}
