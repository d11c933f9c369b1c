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

// tables is a PostgreSQL with rules and overrides, and a node that follows it.
type tables struct {
	*suite.Scope
	w       *world
	address string
	db      *pgrules.DB
	node    *node
	rules   int
	limit   int64
}

// size compares the costs of large tables for a node with those of small ones, which another node follows at the same time.
func (w *world) size(scope *suite.Scope) {
	rules, overrides, changes := 10_000, 1_000_000, 400
	if w.short {
		rules, overrides, changes = 1_000, 50_000, 200
	}
	small, large := w.newTables(scope, fewRules), w.newTables(scope, rules)
	without, _ := large.memory()
	large.node.Kill()
	imported := large.addOverrides(overrides)
	start := large.startFresh()
	large.node.Kill()
	restarted := large.start()
	size := fmt.Sprintf("%d rules, %d overrides", rules, overrides)
	w.Line(size+": start of a node until it is ready", suite.MaxDuration("from PostgreSQL", start, maxStart),
		suite.MaxDuration("from its last good file", restarted, maxStart), suite.Note("import of the overrides %s", suite.FormatDuration(imported)))
	with, resident := large.memory()
	more := with - without
	w.Line(size+": memory of a node for the overrides", suite.Judged(more <= maxMemory, "%.0f MB of heap (≤ %d MB)", more, maxMemory),
		suite.Note("%.0f bytes each", more*1e6/float64(overrides)), suite.Note("resident memory of the process %.0f MB", resident))
	comparedWith := fmt.Sprintf(", compared with %d rules and no overrides", fewRules)
	one, all := costs(small, large, changes, "one-user", func(t *tables) { override(t.Scope, t.db, name(0), "one-user", t.limit) })
	cpuRatio := float64(all.cpu) / float64(one.cpu)
	w.Line(size+": one more override"+comparedWith, suite.MaxDuration("in force after", all.elapsed, maxNotified), suite.Note("%s", suite.FormatDuration(one.elapsed)),
		suite.Judged(cpuRatio <= maxCPURatio, "CPU of the node %s, %s: ratio %.1f (≤ %g)", suite.FormatDuration(all.cpu), suite.FormatDuration(one.cpu), cpuRatio, maxCPURatio),
		suite.Note("bytes written %d, %d", all.keptSize, one.keptSize))
	one, all = costs(small, large, changes/10, "any-user", func(t *tables) {
		_, err := publish(t.Context(), t.db, ann, document(name(0), "/"+name(0), t.limit))
		testenv.NoError(t, err)
	})
	w.Line(size+": one more rule, which compiles all rules"+comparedWith, suite.MaxDuration("in force after", all.elapsed, maxNotified),
		suite.Note("%s", suite.FormatDuration(one.elapsed)), suite.Note("CPU of the node %s, %s", suite.FormatDuration(all.cpu), suite.FormatDuration(one.cpu)),
		suite.Note("bytes written %d, %d", all.keptSize, one.keptSize))
}

// newTables starts a PostgreSQL with rules and no overrides, and a node that follows it.
func (w *world) newTables(scope *suite.Scope, rules int) *tables {
	t := &tables{Scope: scope, w: w, address: testenv.StartPostgres(scope).URL(), rules: rules, limit: 1000}
	t.db = openDB(scope, t.address)
	_, _, err := t.db.Migrate(t.Context())
	testenv.NoError(t, err)
	texts := make([]string, rules)
	for i := range texts {
		texts[i] = document(name(i), "/"+name(i), 1000)
	}
	_, err = publish(t.Context(), t.db, ann, texts...)
	testenv.NoError(t, err)
	t.startFresh()
	return t
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

// costs makes the same changes to small and to large tables and returns what one costs. It changes them in turn, so that whatever
// disturbs the machine disturbs both.
func costs(small, large *tables, changes int, user string, change func(*tables)) (one, all cost) {
	one.elapsed, all.elapsed = small.timeChanges(user, change), large.timeChanges(user, change)
	oneUsed, allUsed := small.used(), large.used()
	for range changes {
		for _, t := range []*tables{small, large} {
			t.limit++
			change(t)
			t.awaitApplied()
		}
	}
	one.add(oneUsed, small.used(), changes)
	all.add(allUsed, large.used(), changes)
	return one, all
}

// timeChanges makes changes and returns the median of the times until the node applied them.
func (t *tables) timeChanges(user string, change func(*tables)) time.Duration {
	times := make([]time.Duration, timedChanges)
	for i := range times {
		t.limit++
		change(t)
		began := time.Now()
		testenv.NoError(t, t.node.awaitLimit(t.Context(), "/"+name(0), user, t.limit))
		times[i] = time.Since(began)
	}
	return paired.Quantile(0.5, times)
}

// used returns the CPU time that the node has used so far, and the size of its last good file.
func (t *tables) used() cost {
	file, err := os.Stat(filepath.Join(t.node.Dir, "kept"))
	testenv.NoError(t, err)
	return cost{cpu: t.node.CPU(), keptSize: file.Size()}
}

// add adds what one of several changes used.
func (c *cost) add(before, after cost, changes int) {
	c.cpu = max(after.cpu-before.cpu, 10*time.Millisecond) / time.Duration(changes) // CPU time has a resolution of 10 ms
	c.keptSize = (after.keptSize - before.keptSize) / int64(changes)
}

// awaitApplied returns when the node reports that it has applied all changes.
func (t *tables) awaitApplied() {
	_, change := present(t.Scope, t.db)
	testenv.NoError(t, await("a change at the node", func() (bool, error) {
		nodes, err := t.db.Nodes(t.Context())
		return slices.ContainsFunc(nodes, func(n pgrules.Node) bool { return n.Seq >= change }), err
	}))
}
