package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	maxNotified = time.Second
	maxPolled   = 10 * time.Second
)

// changes is how soon a change is in force on all nodes, since it was committed.
func changes(ctx context.Context, w *world, r *report) error {
	rules, overrides := make([]time.Duration, 50), make([]time.Duration, 50)
	if !w.short {
		rules, overrides = make([]time.Duration, 200), make([]time.Duration, 200)
	}
	for i := range rules {
		if _, err := w.put(ctx); err != nil {
			return err
		}
		var err error
		if rules[i], err = w.reach(ctx, "anybody", w.limit); err != nil {
			return err
		}
		user, limit := fmt.Sprintf("user-%d", i%10), int64(2_000_000+i)
		if err := override(ctx, w.db, rule, user, limit); err != nil {
			return err
		}
		if overrides[i], err = w.reach(ctx, user, limit); err != nil {
			return err
		}
	}
	for _, kind := range []struct {
		name  string
		times []time.Duration
	}{{"a rule", rules}, {"an override", overrides}} {
		r.line(fmt.Sprintf("%d changes of %s, until the slowest of %d nodes decides by it", len(kind.times), kind.name, len(w.nodes)),
			noted("p50 %s", span(quantile(0.5, kind.times))), atMost("p99", quantile(0.99, kind.times), maxNotified),
			noted("worst %s", span(quantile(1, kind.times))))
	}
	return silent(ctx, w, r)
}

// silent makes changes of which PostgreSQL tells nobody: for whoever writes, pg_notify is a function that does nothing.
func silent(ctx context.Context, w *world, r *report) error {
	if err := w.sql(ctx, "CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''"); err != nil {
		return err
	}
	db, err := openDB(w.scope, w.address+"&search_path=public,pg_catalog")
	if err != nil {
		return err
	}
	listener, err := pgx.Connect(ctx, w.address)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close(ctx) }()
	if _, err := listener.Exec(ctx, "LISTEN headgate"); err != nil {
		return err
	}
	times := make([]time.Duration, 2)
	if !w.short {
		times = make([]time.Duration, 5)
	}
	for i := range times {
		if _, err := w.putBy(ctx, db); err != nil {
			return err
		}
		if times[i], err = w.reach(ctx, "anybody", w.limit); err != nil {
			return err
		}
	}
	quiet, err := notified(ctx, listener)
	if err != nil {
		return err
	}
	if _, err := w.put(ctx); err != nil {
		return err
	}
	heard, err := notified(ctx, listener)
	if err != nil {
		return err
	}
	r.line(fmt.Sprintf("%d changes of which nobody is told", len(times)), atMost("worst", quantile(1, times), maxPolled),
		says(!quiet && heard, "NOTIFY seen: %v, with the real pg_notify %v", quiet, heard))
	_, err = w.reach(ctx, "anybody", w.limit)
	return err
}

// notified is whether something has come within a moment.
func notified(ctx context.Context, conn *pgx.Conn) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	_, err := conn.WaitForNotification(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}
