package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// startClients makes nodes of the library, each with connections of its own. It waits for none of them, so all start at
// the same moment.
func startClients(count int) func(*world) error {
	return func(w *world) error {
		dir := w.scope.TempDir()
		for i := range count {
			n, err := newClient(w, filepath.Join(dir, userName(i)), count)
			if err != nil {
				return err
			}
			w.nodes = append(w.nodes, n)
		}
		return nil
	}
}

func newClient(w *world, logPath string, count int) (*node, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	redis, err := redisstore.Open(w.address)
	if err != nil {
		return nil, err
	}
	store := storewrap.New(redis, storewrap.Options{Nodes: count, Log: slog.New(slog.NewJSONHandler(log, nil))})
	w.scope.Cleanup(func() {
		store.Close()
		redis.Close()
		_ = log.Close()
	})
	limiter, err := headgate.New(store,
		headgate.Rule{
			ID: "hot", Match: headgate.Match{Path: pathOf(hotUser)}, By: []string{"user"},
			Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Window: window, Align: headgate.OnClock},
		},
		headgate.Rule{
			ID: "spread", Match: headgate.Match{Path: pathOf(0)}, By: []string{"user"},
			Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1_000_000, Window: time.Hour}, Strict: true,
		})
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, user int) (a answer, err error) {
		d, err := limiter.Check(ctx, headgate.Request{Attributes: headgate.Attributes{"path": pathOf(user), "user": userName(user)}})
		if err != nil {
			return a, err
		}
		a = answer{Status: http.StatusOK, Allowed: d.Allowed, Path: string(d.Path)}
		if len(d.Limits) > 0 {
			a.Reset = d.Limits[0].Time.Add(d.Limits[0].ResetAfter)
		}
		return a, nil
	}
	return &node{ask: ask, log: logPath}, nil
}
