package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storewrap"
)

// startClients creates nodes of the library in this process, each with its own connections. It waits for none of them, so that
// all start at the same time.
func startClients(count int) func(*world) {
	return func(w *world) {
		for range count {
			w.nodes = append(w.nodes, newClient(w, count))
		}
	}
}

func newClient(w *world, count int) *node {
	log := &testenv.Log{}
	store := fleet.Wrap(w, w.address, storewrap.Options{Nodes: count, Log: slog.New(slog.NewJSONHandler(log, nil))})
	limiter, err := headgate.New(store,
		headgate.Rule{
			ID: "hot", Match: headgate.Match{Path: pathOf(hotUser)}, By: []string{"user"},
			Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Window: window, Align: headgate.OnClock},
		},
		headgate.Rule{
			ID: "spread", Match: headgate.Match{Path: pathOf(0)}, By: []string{"user"},
			Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1_000_000, Window: time.Hour}, Strict: true,
		})
	testenv.NoError(w, err)
	check := func(ctx context.Context, user int) (a fleet.Decision, err error) {
		d, err := limiter.Check(ctx, headgate.Request{Attributes: attributes(user)})
		if err != nil {
			return a, err
		}
		a = fleet.Decision{Status: http.StatusOK, Allowed: d.Allowed, Path: string(d.Path)}
		if len(d.Limits) > 0 {
			a.Reset = d.Limits[0].Time.Add(d.Limits[0].ResetAfter)
		}
		return a, nil
	}
	return &node{check: check, log: log.String}
}
