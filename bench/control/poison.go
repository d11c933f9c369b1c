package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// nonsense is what nobody wants in force.
type nonsense struct {
	name string
	// document is what is published; "" takes out all rules.
	document string
	// statement does the same by hand, past all checks.
	statement string
	// why is what the refusals say.
	why string
}

var nonsenses = []nonsense{
	{
		"invalid rules", `{"id":"bad","by":["user"],"limit":"5/often"}`,
		`UPDATE rate_limit_rules SET document = replace(document, '/hour', '/often')`, `no unit "often"`,
	},
	{"no rules", "", "UPDATE rate_limit_rules SET enabled = false", "no rule would be left"},
	{
		"rules that refuse everybody", `{"id":"all","by":[],"limit":"1/day"}`,
		`INSERT INTO rate_limit_rules (name, scope, document, algorithm, max_requests, window_seconds)
			VALUES ('all', 'global', '{"id":"all","by":[],"limit":"1/day"}', 'token_bucket', 1, 86400)`, "refuse everybody",
	},
}

// poison is refused by whoever publishes, and by each node should it be written by hand.
func poison(ctx context.Context, w *world, r *report) error {
	for _, bad := range nonsenses {
		before, _, _, err := w.db.Present(ctx)
		if err != nil {
			return err
		}
		refused := w.swallow(ctx, bad)
		after, _, _, err := w.db.Present(ctx)
		if err != nil {
			return err
		}
		if err := w.sql(ctx, bad.statement); err != nil {
			return err
		}
		began := time.Now()
		if err := w.each(func(n *node) error { return n.troubled(ctx, bad.why) }); err != nil {
			return err
		}
		told := time.Since(began)
		kept := w.each(func(n *node) error {
			if a, err := n.check(ctx, path, "anybody"); err != nil || !a.Allowed || a.count() != w.limit {
				return fmt.Errorf("%s decides by %d: %w", n.HTTP, a.count(), err)
			}
			return nil
		})
		if _, err := w.db.Rollback(ctx, ann, before); err != nil {
			return fmt.Errorf("correcting %s: %w", bad.name, err)
		}
		if err := w.each(func(n *node) error { return n.well(ctx) }); err != nil {
			return err
		}
		if _, err := w.put(ctx); err != nil {
			return err
		}
		_, err = w.reach(ctx, "anybody", w.limit)
		r.line(bad.name, so(refused != nil && strings.Contains(refused.Error(), bad.why) && before == after, "refused when published"),
			atMost("written by hand, all nodes refuse it and say why after", told, maxNotified),
			so(kept == nil, "all decide as before"), so(err == nil, "corrected by a rollback, all go on"))
	}
	return nil
}

// swallow tries to publish it, and is why that is refused.
func (w *world) swallow(ctx context.Context, bad nonsense) error {
	if bad.document == "" {
		_, err := w.db.Publish(ctx, ann, pgrules.Change{Prune: true})
		return err
	}
	_, err := publish(ctx, w.db, ann, bad.document)
	return err
}
