package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// TestSwapWeights replaces a text from two nodes, of which one is late, in every kind of server.
func TestSwapWeights(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"redis": standalone(startServer(t)), "valkey": standalone(testenv.Start(t, testenv.Valkey)), "cluster": cluster(startCluster(t)),
	} {
		t.Run(name, func(t *testing.T) {
			first, second := open(t, address), open(t, address)
			var last time.Time
			for i, step := range []struct {
				store              *Store
				name               string
				old, new, expected string
			}{
				{first, "a", "", "", ""},
				{first, "a", "", "1", "1"},
				{second, "a", "", "2", "1"},
				{second, "a", "1", "2", "2"},
				{first, "a", "", "", "2"},
				{first, "b", "", "", ""},
			} {
				got, at, err := step.store.SwapWeights(t.Context(), step.name, step.old, step.new)
				if err != nil || got != step.expected || at.Before(last) {
					t.Errorf("step %d: %q at %s after %s, %v; want %q", i, got, at, last, err, step.expected)
				}
				last = at
			}
		})
	}
}
