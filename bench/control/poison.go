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

// badRules is a set of rules that must not come into force.
type badRules struct {
	name string
	// document is the rule to publish; "" removes all rules.
	document string
	// statement does the same in SQL, bypassing all checks.
	statement string
	// why is part of the error.
	why string
}

var badRuleSets = []badRules{
	{
		"invalid rules", `{"id":"bad","by":["user"],"limit":"5/often"}`,
		`UPDATE rate_limit_rules SET document = replace(document, '/hour', '/often')`, `"often"`,
	},
	{"no rules", "", "UPDATE rate_limit_rules SET enabled = false", "no rule would remain"},
	{
		"rules that deny all clients", `{"id":"all","by":[],"limit":"1/day"}`,
		`INSERT INTO rate_limit_rules (name, scope, document, algorithm, max_requests, window_seconds)
			VALUES ('all', 'global', '{"id":"all","by":[],"limit":"1/day"}', 'token_bucket', 1, 86400)`, "deny all clients",
	},
}

// poison expects bad rules to be rejected when they are published, and by each node if they are written in SQL.
func (w *world) poison(t *suite.Scope) {
	for _, bad := range badRuleSets {
		before, _ := present(t, w.db)
		publishErr := w.tryPublish(t.Context(), bad)
		after, _ := present(t, w.db)
		w.sql(t, bad.statement)
		began := time.Now()
		w.awaitStatus(t, "degraded", bad.why)
		rejected := time.Since(began)
		changed := w.eachNode(func(n *node) error {
			if a, err := n.check(t.Context(), path, "any-user"); err != nil || !a.Allowed || a.Count() != w.limit {
				return fmt.Errorf("%s decides by %d: %w", n.HTTP, a.Count(), err)
			}
			return nil
		})
		_, err := w.db.Rollback(t.Context(), ann, before)
		testenv.NoError(t, err)
		w.awaitStatus(t, "ok", "")
		w.changeLimit(t)
		err = w.eachNode(func(n *node) error { return n.awaitLimit(t.Context(), path, "any-user", w.limit) })
		w.Line(bad.name, suite.Holds(publishErr != nil && strings.Contains(publishErr.Error(), bad.why) && before == after, "rejected when published"),
			suite.MaxDuration("written in SQL, all nodes reject them and report why after", rejected, maxNotified),
			suite.Holds(changed == nil, "all decide as before"), suite.Holds(err == nil, "corrected by a rollback, all resume"))
	}
}

// tryPublish tries to publish bad rules and returns the error.
func (w *world) tryPublish(ctx context.Context, bad badRules) error {
	if bad.document == "" {
		_, err := w.db.Publish(ctx, ann, pgrules.Change{Prune: true})
		return err
	}
	_, err := publish(ctx, w.db, ann, bad.document)
	return err
}
