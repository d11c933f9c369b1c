package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	fewRules  = 10
	maxStart  = 10 * time.Second
	maxMemory = 150 // MB
	// maxCPURatio is the maximum ratio of a change's CPU cost on a node with all overrides to that on one without.
	maxCPURatio = 2.0
	// timedChanges is the number of changes made to measure when the node applies them.
	timedChanges = 20
)

// tables is a PostgreSQL with growing tables, and a node that follows it.
type tables struct {
	*suite.Scope
	w       *world
	address string
	db      *pgrules.DB
	node    *node
	rules   int
	limit   int64
}

// size compares the costs of large tables for a node with those of small ones.
func (w *world) size(scope *suite.Scope) {
	rules, overrides, trials := 10_000, 1_000_000, 400
	if w.short {
		rules, overrides, trials = 1_000, 50_000, 200
	}
	t := &tables{Scope: scope, w: w, address: testenv.StartPostgres(scope).URL(), limit: 1000}
	t.db = openDB(scope, t.address)
	_, _, err := t.db.Migrate(t.Context())
	testenv.NoError(t, err)
	t.addRules(fewRules)
	t.startFresh()
	small := t.cost(trials)
	t.addRules(rules)
	t.startFresh()
	without, _ := t.memory()
	t.node.Kill()
	imported := t.addOverrides(overrides)
	start := t.startFresh()
	t.node.Kill()
	restarted := t.start()
	size := fmt.Sprintf("%d rules, %d overrides", rules, overrides)
	w.Line(size+": start of a node until it is ready", suite.MaxDuration("from PostgreSQL", start, maxStart),
		suite.MaxDuration("from its last good file", restarted, maxStart), suite.Note("import of the overrides %s", suite.FormatDuration(imported)))
	with, resident := t.memory()
	more := with - without
	w.Line(size+": memory of a node for the overrides", suite.Judged(more <= maxMemory, "%.0f MB of heap (≤ %d MB)", more, maxMemory),
		suite.Note("%.0f bytes each", more*1e6/float64(overrides)), suite.Note("resident memory of the process %.0f MB", resident))
	large := t.cost(trials)
	comparedWith := fmt.Sprintf(", compared with %d rules and no overrides", fewRules)
	one, all := small.override, large.override
	cpuRatio := float64(all.cpu) / float64(one.cpu)
	w.Line(size+": one more override"+comparedWith, suite.MaxDuration("in force after", all.elapsed, maxNotified), suite.Note("%s", suite.FormatDuration(one.elapsed)),
		suite.Judged(cpuRatio <= maxCPURatio, "CPU of the node %s, %s: ratio %.1f (≤ %g)", suite.FormatDuration(all.cpu), suite.FormatDuration(one.cpu), cpuRatio, maxCPURatio),
		suite.Note("bytes written %d, %d", all.keptSize, one.keptSize))
	one, all = small.rule, large.rule
	w.Line(size+": one more rule, which compiles all rules"+comparedWith, suite.MaxDuration("in force after", all.elapsed, maxNotified),
		suite.Note("%s", suite.FormatDuration(one.elapsed)), suite.Note("CPU of the node %s, %s", suite.FormatDuration(all.cpu), suite.FormatDuration(one.cpu)),
		suite.Note("bytes written %d, %d", all.keptSize, one.keptSize))
}

// addRules publishes rules until there are count.
func (t *tables) addRules(count int) {
	var texts []string
	for i := t.rules; i < count; i++ {
		texts = append(texts, document(name(i), "/"+name(i), 1000))
	}
	t.rules = count
	_, err := publish(t.Context(), t.db, ann, texts...)
	testenv.NoError(t, err)
}

func name(rule int) string { return fmt.Sprintf("r-%d", rule) }

// addOverrides adds count overrides, spread over the rules, and returns how long it took.
func (t *tables) addOverrides(count int) time.Duration {
	began := time.Now()
	for i := 0; i < count; {
		batch := make([]pgrules.Override, min(pgrules.MaxOverrides, count-i))
		for k := range batch {
			batch[k] = pgrules.Override{
				Rule: name(i / pgrules.MaxOverrides % t.rules), Subject: headgate.Attributes{"user": fmt.Sprintf("customer-%d", i)}, Limit: "5000/hour",
			}
			i++
		}
		_, err := t.db.SetOverrides(t.Context(), ann, batch)
		testenv.NoError(t, err)
	}
	return time.Since(began)
}

// startFresh starts a new node without a last good file and returns how long it took to be ready.
func (t *tables) startFresh() time.Duration {
	if t.node != nil {
		t.node.Kill()
	}
	t.node = t.w.newNode(from(t.address), nil)
	return t.start()
}

// start starts the node and returns how long it took to be ready.
func (t *tables) start() time.Duration {
	began := time.Now()
	t.node.Start()
	testenv.NoError(t, t.node.awaitStatus(t.Context(), "ok", ""))
	return time.Since(began)
}

// memory returns the heap in use and the resident memory of the node, in MB, without the garbage of its start: it sends checks until
// two garbage collections have run, and returns the smallest heap.
func (t *tables) memory() (heap, resident float64) {
	metric := func(name string) float64 {
		value, err := t.node.Metric(t.Context(), name)
		testenv.NoError(t, err)
		return value
	}
	first := metric("go_gc_duration_seconds_count")
	heap = math.Inf(1)
	for {
		collected := metric("go_gc_duration_seconds_count")
		if heap = min(heap, metric("go_memstats_heap_inuse_bytes")); collected >= first+2 {
			return heap / 1e6, metric("process_resident_memory_bytes") / 1e6
		}
		for i := range 200 {
			_, err := t.node.check(t.Context(), "/r-0", fmt.Sprintf("any-user-%d", i))
			testenv.NoError(t, err)
		}
	}
}

// cost is the cost of one change.
type cost struct {
	elapsed  time.Duration // median, until the node applies it
	cpu      time.Duration // of the node
	keptSize int64         // bytes in the node's last good file
}

type costs struct{ rule, override cost }

func (t *tables) cost(trials int) (c costs) {
	c.override = t.costOf(trials, "one-user", func(limit int64) { override(t.Scope, t.db, name(0), "one-user", limit) })
	c.rule = t.costOf(max(5, trials/10), "any-user", func(limit int64) {
		_, err := publish(t.Context(), t.db, ann, document(name(0), "/"+name(0), limit))
		testenv.NoError(t, err)
	})
	return c
}

// costOf makes changes: some to measure when the node applies them, and some to measure their CPU cost, without any checks.
func (t *tables) costOf(trials int, user string, change func(limit int64)) (c cost) {
	times := make([]time.Duration, timedChanges)
	for i := range times {
		t.limit++
		change(t.limit)
		began := time.Now()
		testenv.NoError(t, t.node.awaitLimit(t.Context(), "/"+name(0), user, t.limit))
		times[i] = time.Since(began)
	}
	c.elapsed = paired.Quantile(0.5, times)
	before, cpu := t.keptSize(), t.node.CPU()
	for range trials {
		t.limit++
		change(t.limit)
		t.awaitApplied()
	}
	c.cpu = max(t.node.CPU()-cpu, 10*time.Millisecond) / time.Duration(trials) // CPU time has a resolution of 10 ms
	c.keptSize = (t.keptSize() - before) / int64(trials)
	return c
}

// keptSize returns the size of the node's last good file.
func (t *tables) keptSize() int64 {
	file, err := os.Stat(filepath.Join(t.node.Dir, "kept"))
	testenv.NoError(t, err)
	return file.Size()
}

// awaitApplied returns when the node reports that it has applied all changes.
func (t *tables) awaitApplied() {
	_, change := present(t.Scope, t.db)
	testenv.NoError(t, await("a change at the node", func() (bool, error) {
		nodes, err := t.db.Nodes(t.Context())
		return slices.ContainsFunc(nodes, func(n pgrules.Node) bool { return n.Seq >= change }), err
	}))
}
