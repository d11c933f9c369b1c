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

// scenario is one attack. It fills a world with records, and says in the world's header what is to be judged.
type scenario struct {
	name string
	run  func(*world)
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

// out is the directory of histories.
var out = filepath.Join("out", "adversary")

// attack runs one scenario, writes its history, and judges what was written.
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
	if findings = judgeFile(scope, path, time.Since(began)); findings > 0 { // else the next run may overwrite it
		found := filepath.Join(out, fmt.Sprintf("%s-%d.jsonl", s.name, seed))
		fmt.Printf("     history: %s\n", found)
		testenv.NoError(scope, os.Rename(path, found))
	}
	return findings
}

// world is what one scenario attacks: stores, nodes and the records of what their callers saw.
type world struct {
	*suite.Scope
	// headgate returns the path of the server's program. It is built once, while the first scenarios run.
	headgate func() string
	short    bool
	rand     *rand.Rand
	header   judge.Header

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

// event records something that was done since a time, and is over.
func (w *world) event(began time.Time, e judge.Record) {
	e.Op, e.Sent, e.Received = judge.OpEvent, began.UnixMicro(), time.Now().UnixMicro()
	w.keep(e)
}

// redis starts a server of its own and returns it with its address for nodes.
func (w *world) redis(extra ...string) (*testenv.Server, string) {
	s := testenv.Start(w, testenv.Redis, extra...)
	return s, "redis://" + s.Addr()
}

// collect ends the workers and reads what they have recorded.
func (w *world) collect() {
	_ = together(w.workers, func(_ int, k *worker) error {
		k.quit()
		return nil
	})
	for _, k := range w.workers {
		records, err := judge.ReadRecords(k.spec.Out)
		testenv.NoError(w, err)
		w.records = append(w.records, records...)
	}
}
