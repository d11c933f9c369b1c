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
	// maxDearer is how much more one change may cost a node where there are 100,000 times as many overrides.
	maxDearer = 2.0
	// sighted is how many changes are made to see when the node decides by them.
	sighted = 20
)

// tables is a PostgreSQL that gets large, and a node that follows it.
type tables struct {
	*suite.Scope
	w       *world
	address string
	db      *pgrules.DB
	node    *node
	rules   int
	limit   int64
}

// size is what large tables cost a node, beside small ones.
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
	t.fresh()
	small := t.cost(trials)
	t.addRules(rules)
	t.fresh()
	without, _ := t.memory()
	t.node.Kill()
	imported := t.addOverrides(overrides)
	started := t.fresh()
	t.node.Kill()
	restarted := t.started()
	size := fmt.Sprintf("%d rules, %d overrides", rules, overrides)
	w.Line(size+": start of a node until it is ready", suite.MaxDuration("from PostgreSQL", started, maxStart),
		suite.MaxDuration("from its kept file", restarted, maxStart), suite.Note("import of the overrides %s", suite.FormatDuration(imported)))
	with, resident := t.memory()
	more := with - without
	w.Line(size+": memory of a node for the overrides", suite.Judged(more <= maxMemory, "%.0f MB of heap (≤ %d MB)", more, maxMemory),
		suite.Note("%.0f bytes each", more*1e6/float64(overrides)), suite.Note("the process takes %.0f MB", resident))
	large := t.cost(trials)
	beside := fmt.Sprintf(", beside %d rules and no overrides", fewRules)
	one, all := small.override, large.override
	dearer := float64(all.cpu) / float64(one.cpu)
	w.Line(size+": one override more"+beside, suite.MaxDuration("in force after", all.took, maxNotified), suite.Note("%s", suite.FormatDuration(one.took)),
		suite.Judged(dearer <= maxDearer, "CPU of the node %s, %s: ratio %.1f (≤ %g)", suite.FormatDuration(all.cpu), suite.FormatDuration(one.cpu), dearer, maxDearer),
		suite.Note("bytes kept %d, %d", all.kept, one.kept))
	one, all = small.rule, large.rule
	w.Line(size+": one rule more, which compiles all"+beside, suite.MaxDuration("in force after", all.took, maxNotified),
		suite.Note("%s", suite.FormatDuration(one.took)), suite.Note("CPU of the node %s, %s", suite.FormatDuration(all.cpu), suite.FormatDuration(one.cpu)),
		suite.Note("bytes kept %d, %d", all.kept, one.kept))
}

// addRules has so many in force.
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

// addOverrides adds many for each of some rules.
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

// fresh is how long a node takes until it is ready that has nothing but the address.
func (t *tables) fresh() time.Duration {
	if t.node != nil {
		t.node.Kill()
	}
	t.node = t.w.newNode(from(t.address), nil)
	return t.started()
}

// started is how long the node takes until it is ready.
func (t *tables) started() time.Duration {
	began := time.Now()
	t.node.Start()
	testenv.NoError(t, t.node.becomes(t.Context(), "ok", ""))
	return time.Since(began)
}

// memory is what the heap of the node has in use and what the process takes, in MB, as soon as what it needed only to start is gone: it
// is asked until garbage was collected twice, and the least counts.
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
			_, err := t.node.check(t.Context(), "/r-0", fmt.Sprintf("anybody-%d", i))
			testenv.NoError(t, err)
		}
	}
}

// cost is what one change costs.
type cost struct {
	took time.Duration // until the node decides by it, the median
	cpu  time.Duration // of the node
	kept int64         // bytes in the node's file
}

type costs struct{ rule, override cost }

func (t *tables) cost(trials int) (c costs) {
	c.override = t.costOf(trials, "somebody", func(limit int64) { override(t.Scope, t.db, name(0), "somebody", limit) })
	c.rule = t.costOf(max(5, trials/10), "anybody", func(limit int64) {
		_, err := publish(t.Context(), t.db, ann, document(name(0), "/"+name(0), limit))
		testenv.NoError(t, err)
	})
	return c
}

// costOf makes changes: some to see when the node decides by them, and some to see what they cost it, for which it is left alone.
func (t *tables) costOf(trials int, user string, change func(limit int64)) (c cost) {
	times := make([]time.Duration, sighted)
	for i := range times {
		t.limit++
		change(t.limit)
		began := time.Now()
		testenv.NoError(t, t.node.until(t.Context(), "/"+name(0), user, t.limit))
		times[i] = time.Since(began)
	}
	c.took = paired.Quantile(0.5, times)
	before, cpu := t.kept(), t.node.CPU()
	for range trials {
		t.limit++
		change(t.limit)
		t.followed()
	}
	c.cpu = max(t.node.CPU()-cpu, 10*time.Millisecond) / time.Duration(trials) // which is counted in hundredths of a second
	c.kept = (t.kept() - before) / int64(trials)
	return c
}

// kept is the size of the node's file with the last good state.
func (t *tables) kept() int64 {
	file, err := os.Stat(filepath.Join(t.node.Dir, "kept"))
	testenv.NoError(t, err)
	return file.Size()
}

// followed returns when the node says that it has all changes.
func (t *tables) followed() {
	_, change := present(t.Scope, t.db)
	testenv.NoError(t, await("a change at the node", func() (bool, error) {
		nodes, err := t.db.Nodes(t.Context())
		return slices.ContainsFunc(nodes, func(n pgrules.Node) bool { return n.Seq >= change }), err
	}))
}
