package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/server/pgrules"
)

const rounds = 50

// operators lets two change one rule at once, again and again, and looks at what the audit says of it.
func operators(ctx context.Context, w *world, r *report) error {
	const shared = "shared"
	first, err := publish(ctx, w.db, ann, document(shared, "/shared", 1))
	if err != nil {
		return err
	}
	before, err := w.db.RulesAt(ctx, first)
	if err != nil {
		return err
	}
	want := []string{"ann insert " + document(shared, "/shared", 1)}
	conflicts := 0
	for round := range rounds {
		won, lost, err := w.race(ctx, shared, 10*(round+1))
		if err != nil {
			return err
		}
		want = append(want, won...)
		conflicts += lost
	}
	entries, err := w.db.Audit(ctx, shared, "", pgrules.Page{Most: 1000})
	if err != nil {
		return err
	}
	var audited []string
	for i := range entries {
		var row struct{ Document string }
		if err := json.Unmarshal(entries[i].New, &row); err != nil {
			return err
		}
		audited = append(audited, fmt.Sprintf("%s %s %s", entries[i].Actor, entries[i].Action, row.Document))
	}
	slices.Reverse(audited) // newest first
	r.line(fmt.Sprintf("two operators change one rule at once, %d times", rounds),
		says(conflicts == rounds && len(want) == 1+rounds, "%d conflicts, %d changes", conflicts, len(want)-1),
		so(slices.Equal(audited, want), fmt.Sprintf("the %d entries of the audit are these changes, in order, with who", len(audited))))
	if _, err := w.db.Rollback(ctx, ann, first); err != nil {
		return err
	}
	now, _, _, err := w.db.Present(ctx)
	if err != nil {
		return err
	}
	after, err := w.db.RulesAt(ctx, now)
	if err != nil {
		return err
	}
	same := slices.EqualFunc(before, after, func(a, b pgrules.Rule) bool {
		return a.Name == b.Name && a.Enabled == b.Enabled && a.Flat == b.Flat && bytes.Equal(a.Document, b.Document)
	})
	r.line("rollback", so(same, fmt.Sprintf("version %d has the %d rules of version %d, to the byte", now, len(before), first)))
	return nil
}

// race has two operators change a rule from what both have read. won is what the audit should say of it.
func (w *world) race(ctx context.Context, name string, limit int) (won []string, conflicts int, err error) {
	read, err := w.db.Rule(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, who := range []string{"bob", "eve"} {
		all.Go(func() {
			text := document(name, "/shared", int64(limit+i))
			e, failed := edit(text)
			if failed == nil {
				e.Revision = read.Revision
				_, failed = w.db.Publish(ctx, pgrules.Who{Name: who}, pgrules.Change{Edits: []pgrules.Edit{e}})
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed == nil:
				won = append(won, fmt.Sprintf("%s update %s", who, text))
			case errors.Is(failed, pgrules.ErrConflict):
				conflicts++
			default:
				err = failed
			}
		})
	}
	all.Wait()
	return won, conflicts, err
}
