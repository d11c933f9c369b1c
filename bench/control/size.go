package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate"
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
	w       *world
	address string
	db      *pgrules.DB
	node    *node
	rules   int
	limit   int64
}

// size is what large tables cost a node, beside small ones.
func size(ctx context.Context, w *world, r *report) error {
	rules, overrides, trials := 10_000, 1_000_000, 400
	if w.short {
		rules, overrides, trials = 1_000, 50_000, 200
	}
	t := &tables{w: w, address: testenv.StartPostgres(w.scope).URL(), limit: 1000}
	var err error
	if t.db, err = openDB(w.scope, t.address); err != nil {
		return err
	}
	if _, _, err := t.db.Migrate(ctx); err != nil {
		return err
	}
	if err := t.addRules(ctx, fewRules); err != nil {
		return err
	}
	if _, err := t.fresh(ctx); err != nil {
		return err
	}
	small, err := t.cost(ctx, trials)
	if err != nil {
		return err
	}
	if err := t.addRules(ctx, rules); err != nil {
		return err
	}
	if _, err := t.fresh(ctx); err != nil {
		return err
	}
	without, _, err := t.memory(ctx)
	if err != nil {
		return err
	}
	t.node.Kill()
	imported, err := t.addOverrides(ctx, overrides)
	if err != nil {
		return err
	}
	started, err := t.fresh(ctx)
	if err != nil {
		return err
	}
	t.node.Kill()
	began := time.Now()
	t.node.Start()
	if err := t.node.well(ctx); err != nil {
		return err
	}
	size := fmt.Sprintf("%d rules, %d overrides", rules, overrides)
	r.line(size+": start of a node until it is ready", atMost("from PostgreSQL", started, maxStart),
		atMost("from its kept file", time.Since(began), maxStart), noted("import of the overrides %s", span(imported)))
	with, resident, err := t.memory(ctx)
	if err != nil {
		return err
	}
	more := with - without
	r.line(size+": memory of a node for the overrides", says(more <= maxMemory, "%.0f MB of heap (≤ %d MB)", more, maxMemory),
		noted("%.0f bytes each", more*1e6/float64(overrides)), noted("the process takes %.0f MB", resident))
	large, err := t.cost(ctx, trials)
	if err != nil {
		return err
	}
	beside := fmt.Sprintf(", beside %d rules and no overrides", fewRules)
	one, all := small.override, large.override
	dearer := float64(all.cpu) / float64(one.cpu)
	r.line(size+": one override more"+beside, atMost("in force after", all.took, maxNotified), noted("%s", span(one.took)),
		says(dearer <= maxDearer, "CPU of the node %s, %s: ratio %.1f (≤ %g)", span(all.cpu), span(one.cpu), dearer, maxDearer),
		noted("bytes kept %d, %d", all.kept, one.kept))
	one, all = small.rule, large.rule
	r.line(size+": one rule more, which compiles all"+beside, atMost("in force after", all.took, maxNotified), noted("%s", span(one.took)),
		noted("CPU of the node %s, %s", span(all.cpu), span(one.cpu)), noted("bytes kept %d, %d", all.kept, one.kept))
	return nil
}

// addRules has so many in force.
func (t *tables) addRules(ctx context.Context, count int) error {
	var texts []string
	for i := t.rules; i < count; i++ {
		texts = append(texts, document(name(i), "/"+name(i), 1000))
	}
	t.rules = count
	_, err := publish(ctx, t.db, ann, texts...)
	return err
}

func name(rule int) string { return fmt.Sprintf("r-%d", rule) }

// addOverrides adds many for each of some rules.
func (t *tables) addOverrides(ctx context.Context, count int) (time.Duration, error) {
	began := time.Now()
	for i := 0; i < count; {
		batch := make([]pgrules.Override, min(pgrules.MaxOverrides, count-i))
		for k := range batch {
			batch[k] = pgrules.Override{
				Rule: name(i / pgrules.MaxOverrides % t.rules), Subject: headgate.Attributes{"user": fmt.Sprintf("customer-%d", i)}, Text: "5000/hour",
			}
			i++
		}
		if _, err := t.db.SetOverrides(ctx, ann, batch); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// fresh is how long a node takes until it is ready that has nothing but the address.
func (t *tables) fresh(ctx context.Context) (time.Duration, error) {
	if t.node != nil {
		t.node.Kill()
	}
	var err error
	if t.node, err = newNode(t.w.scope, t.w.program, t.w.redis.Addr(), from(t.address)); err != nil {
		return 0, err
	}
	began := time.Now()
	t.node.Start()
	err = t.node.well(ctx)
	return time.Since(began), err
}

// memory is what the heap of the node has in use and what the process takes, in MB, as soon as what it needed only to start is gone: it
// is asked until garbage was collected twice, and the least counts.
func (t *tables) memory(ctx context.Context) (heap, resident float64, err error) {
	first := -1.0
	for {
		collected, err := t.node.metric(ctx, "go_gc_duration_seconds_count")
		if err != nil {
			return 0, 0, err
		}
		inUse, err := t.node.metric(ctx, "go_memstats_heap_inuse_bytes")
		if err != nil {
			return 0, 0, err
		}
		if first < 0 {
			first, heap = collected, inUse
		}
		if heap = min(heap, inUse); collected >= first+2 {
			break
		}
		for i := range 200 {
			if _, err := t.node.check(ctx, "/r-0", fmt.Sprintf("anybody-%d", i)); err != nil {
				return 0, 0, err
			}
		}
	}
	resident, err = t.node.metric(ctx, "process_resident_memory_bytes")
	return heap / 1e6, resident / 1e6, err
}

// cost is what one change costs.
type cost struct {
	took time.Duration // until the node decides by it, the median
	cpu  time.Duration // of the node
	kept int64         // bytes in the node's file
}

type costs struct{ rule, override cost }

func (t *tables) cost(ctx context.Context, trials int) (c costs, err error) {
	c.override, err = t.costOf(ctx, trials, "somebody", func(limit int64) error {
		return override(ctx, t.db, name(0), "somebody", limit)
	})
	if err != nil {
		return c, err
	}
	c.rule, err = t.costOf(ctx, max(5, trials/10), "anybody", func(limit int64) error {
		_, err := publish(ctx, t.db, ann, document(name(0), "/"+name(0), limit))
		return err
	})
	return c, err
}

// costOf makes changes: some to see when the node decides by them, and some to see what they cost it, for which it is left alone.
func (t *tables) costOf(ctx context.Context, trials int, user string, change func(limit int64) error) (c cost, err error) {
	times := make([]time.Duration, sighted)
	for i := range times {
		t.limit++
		if err := change(t.limit); err != nil {
			return c, err
		}
		began := time.Now()
		if err := t.node.until(ctx, "/"+name(0), user, t.limit); err != nil {
			return c, err
		}
		times[i] = time.Since(began)
	}
	c.took = quantile(0.5, times)
	before, err := os.Stat(t.node.kept())
	if err != nil {
		return c, err
	}
	cpu := t.node.CPU()
	for range trials {
		t.limit++
		if err := change(t.limit); err != nil {
			return c, err
		}
		if err := t.followed(ctx); err != nil {
			return c, err
		}
	}
	c.cpu = max(t.node.CPU()-cpu, 10*time.Millisecond) / time.Duration(trials) // which is counted in hundredths of a second
	after, err := os.Stat(t.node.kept())
	if err != nil {
		return c, err
	}
	c.kept = (after.Size() - before.Size()) / int64(trials)
	return c, nil
}

// followed returns when the node says that it has all changes.
func (t *tables) followed(ctx context.Context) error {
	_, revision, _, err := t.db.Present(ctx)
	if err != nil {
		return err
	}
	return await("a change at the node", func() (bool, error) {
		nodes, err := t.db.Nodes(ctx)
		for _, n := range nodes {
			if n.Seq >= revision {
				return true, nil
			}
		}
		return false, err
	})
}
