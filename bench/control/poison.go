package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// nonsense is what nobody wants in force.
type nonsense struct {
	name string
	// document is what is published; "" takes out all rules.
	document string
	// statement does the same by hand, past all checks.
	statement string
	// why is what the denials say.
	why string
}

var nonsenses = []nonsense{
	{
		"invalid rules", `{"id":"bad","by":["user"],"limit":"5/often"}`,
		`UPDATE rate_limit_rules SET document = replace(document, '/hour', '/often')`, `no unit "often"`,
	},
	{"no rules", "", "UPDATE rate_limit_rules SET enabled = false", "no rule would be left"},
	{
		"rules that deny everybody", `{"id":"all","by":[],"limit":"1/day"}`,
		`INSERT INTO rate_limit_rules (name, scope, document, algorithm, max_requests, window_seconds)
			VALUES ('all', 'global', '{"id":"all","by":[],"limit":"1/day"}', 'token_bucket', 1, 86400)`, "deny everybody",
	},
}

// poison is denied by whoever publishes, and by each node should it be written by hand.
func (w *world) poison(t *suite.Scope) {
	for _, bad := range nonsenses {
		before, _ := present(t, w.db)
		denied := w.swallow(t.Context(), bad)
		after, _ := present(t, w.db)
		w.sql(t, bad.statement)
		began := time.Now()
		w.become(t, "degraded", bad.why)
		told := time.Since(began)
		kept := w.each(func(n *node) error {
			if a, err := n.check(t.Context(), path, "anybody"); err != nil || !a.Allowed || a.Count() != w.limit {
				return fmt.Errorf("%s decides by %d: %w", n.HTTP, a.Count(), err)
			}
			return nil
		})
		_, err := w.db.Rollback(t.Context(), ann, before)
		testenv.NoError(t, err)
		w.become(t, "ok", "")
		w.put(t)
		err = w.each(func(n *node) error { return n.until(t.Context(), path, "anybody", w.limit) })
		w.Line(bad.name, suite.Holds(denied != nil && strings.Contains(denied.Error(), bad.why) && before == after, "denied when published"),
			suite.MaxDuration("written by hand, all nodes deny it and say why after", told, maxNotified),
			suite.Holds(kept == nil, "all decide as before"), suite.Holds(err == nil, "corrected by a rollback, all go on"))
	}
}

// swallow tries to publish it, and is why that is denied.
func (w *world) swallow(ctx context.Context, bad nonsense) error {
	if bad.document == "" {
		_, err := w.db.Publish(ctx, ann, pgrules.Change{Prune: true})
		return err
	}
	_, err := publish(ctx, w.db, ann, bad.document)
	return err
}
