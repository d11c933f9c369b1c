package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

const rounds = 50

// operators has two operators change one rule at the same time, repeatedly, and checks the audit log.
func (w *world) operators(t *suite.Scope) {
	const shared = "shared"
	first, err := publish(t.Context(), w.db, ann, document(shared, "/shared", 1))
	testenv.NoError(t, err)
	before, err := w.db.RulesAt(t.Context(), first)
	testenv.NoError(t, err)
	want := []string{"ann insert " + document(shared, "/shared", 1)}
	conflicts := 0
	for round := range rounds {
		won, lost := w.race(t, shared, 10*(round+1))
		want = append(want, won...)
		conflicts += lost
	}
	entries, err := w.db.Audit(t.Context(), shared, "", pgrules.Page{Limit: 1000})
	testenv.NoError(t, err)
	var audited []string
	for i := range entries {
		var row struct{ Document string }
		testenv.NoError(t, json.Unmarshal(entries[i].New, &row))
		audited = append(audited, fmt.Sprintf("%s %s %s", entries[i].Actor, entries[i].Action, row.Document))
	}
	slices.Reverse(audited) // newest first
	w.Line(fmt.Sprintf("two operators change one rule at the same time, %d times", rounds),
		suite.Judged(conflicts == rounds && len(want) == 1+rounds, "%d conflicts, %d changes", conflicts, len(want)-1),
		suite.Holds(slices.Equal(audited, want), fmt.Sprintf("the %d audit entries are these changes, in order, with their actors", len(audited))))
	_, err = w.db.Rollback(t.Context(), ann, first)
	testenv.NoError(t, err)
	now, _ := present(t, w.db)
	after, err := w.db.RulesAt(t.Context(), now)
	testenv.NoError(t, err)
	same := slices.EqualFunc(before, after, func(a, b pgrules.Rule) bool {
		return a.Name == b.Name && a.Enabled == b.Enabled && a.Flat == b.Flat && bytes.Equal(a.Document, b.Document)
	})
	w.Line("rollback", suite.Holds(same, fmt.Sprintf("version %d has the %d rules of version %d, byte for byte", now, len(before), first)))
}

// race has two operators change the same revision of a rule. won are the expected audit entries.
func (w *world) race(t *suite.Scope, name string, limit int) (won []string, conflicts int) {
	read, err := w.db.Rule(t.Context(), name)
	testenv.NoError(t, err)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, who := range []string{"bob", "eve"} {
		all.Go(func() {
			text := document(name, "/shared", int64(limit+i))
			e, failed := edit(text)
			if failed == nil {
				e.Revision = read.Revision
				_, failed = w.db.Publish(t.Context(), pgrules.Who{Name: who}, pgrules.Change{Edits: []pgrules.Edit{e}})
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
	testenv.NoError(t, err)
	return won, conflicts
}
