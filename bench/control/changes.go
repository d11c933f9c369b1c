package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	maxNotified = time.Second
	maxPolled   = 10 * time.Second
)

// changes measures how long after its commit a change is in force on all nodes.
func (w *world) changes(t *suite.Scope) {
	trials := 200
	if w.short {
		trials = 50
	}
	rules, overrides := make([]time.Duration, trials), make([]time.Duration, trials)
	for i := range rules {
		w.changeLimit(t)
		rules[i] = w.awaitLimit(t, "any-user", w.limit)
		user, limit := fmt.Sprintf("user-%d", i%10), int64(2_000_000+i)
		override(t, w.db, rule, user, limit)
		overrides[i] = w.awaitLimit(t, user, limit)
	}
	for i, times := range [][]time.Duration{rules, overrides} {
		kind := []string{"a rule", "an override"}[i]
		w.Line(fmt.Sprintf("%d changes of %s, until the slowest of %d nodes applies it", len(times), kind, len(w.nodes)),
			suite.Note("p50 %s", suite.FormatDuration(paired.Quantile(0.5, times))), suite.MaxDuration("p99", paired.Quantile(0.99, times), maxNotified),
			suite.Note("worst %s", suite.FormatDuration(paired.Quantile(1, times))))
	}
	w.withoutNotify(t)
}

// withoutNotify makes changes without notifications: for the writer, pg_notify is a function that does nothing.
func (w *world) withoutNotify(t *suite.Scope) {
	w.sql(t, "CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''")
	db := openDB(t, w.address+"&search_path=public,pg_catalog")
	listener, err := pgx.Connect(t.Context(), w.address)
	testenv.NoError(t, err)
	defer func() { _ = listener.Close(t.Context()) }()
	_, err = listener.Exec(t.Context(), "LISTEN headgate")
	testenv.NoError(t, err)
	times := make([]time.Duration, 2)
	if !w.short {
		times = make([]time.Duration, 5)
	}
	for i := range times {
		_, err := w.tryChangeLimit(t.Context(), db)
		testenv.NoError(t, err)
		times[i] = w.awaitLimit(t, "any-user", w.limit)
	}
	notifiedFake := notified(t, listener)
	w.changeLimit(t)
	notifiedReal := notified(t, listener)
	w.Line(fmt.Sprintf("%d changes without NOTIFY", len(times)), suite.MaxDuration("worst", paired.Quantile(1, times), maxPolled),
		suite.Judged(!notifiedFake && notifiedReal, "NOTIFY received: %v, with the real pg_notify %v", notifiedFake, notifiedReal))
	w.awaitLimit(t, "any-user", w.limit)
}

// notified reports whether a notification arrives within half a second.
func notified(t *suite.Scope, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	_, err := conn.WaitForNotification(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	testenv.NoError(t, err)
	return true
}
