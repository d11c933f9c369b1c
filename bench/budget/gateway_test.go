package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
)

// The gateway charges all that it relays, the slack of each stream that does not end by itself, and no more than the budget.
func TestGateway(t *testing.T) {
	const tokens = 100
	m := newModel(t, time.Millisecond)
	g := &gateway{settings: settings{Model: m.address, Budget: tokens * price, Chunk: 8}}
	var err error
	g.limiter, err = headgate.New(memstore.New(memstore.Options{}), budgetRule(g.Budget))
	testenv.NoError(t, err)
	var calls sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		defer calls.Done()
		g.ServeHTTP(w, r)
	}))
	defer server.Close()
	l := load{plan: &full}
	for _, c := range []struct {
		draft draft
		want  outcome
		// low and high bound the tokens that were charged in total and not read by clients; some may have been relayed to one that
		// had hung up.
		low, high int64
	}{
		{draft{tokens: 20}, finished, 0, 0},
		{draft{tokens: 40, resetAfter: 5}, reset, slack, 35},
		{draft{tokens: 1000}, stopped, 2 * slack, 35 + slack},
		{draft{tokens: 10}, denied, 2 * slack, 35 + slack},
	} {
		if got := l.call(t.Context(), strings.TrimPrefix(server.URL, "http://"), c.draft); got != c.want {
			t.Errorf("%+v: outcome %d, want %d", c.draft, got, c.want)
		}
		calls.Wait()
		d, err := g.limiter.Peek(t.Context(), request(tenant, 1))
		testenv.NoError(t, err)
		charged, relayed := tokens-d.Limits[0].Remaining/price, l.tokens.Load()
		if got := charged - relayed; got < c.low || got > c.high {
			t.Errorf("%+v: charged %d tokens and relayed %d, want a difference of %d to %d", c.draft, charged, relayed, c.low, c.high)
		}
		if c.want == stopped && charged != tokens {
			t.Errorf("the budget is exhausted with %d of %d tokens charged", charged, tokens)
		}
	}
}

// The peer counts all that it can: whole streams in both variants, and reset ones if it counts chunks.
func TestEnvoyCounts(t *testing.T) {
	testenv.Long(t)
	for name, o := range map[string]envoyOptions{"usage": {}, "chunks": {countChunks: true, failureModeDeny: true}} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, time.Millisecond)
			redis := testenv.Start(t, testenv.Redis)
			address := startEnvoy(t, o, 50*price, m, redis)
			l := load{plan: &full}
			await := func(what string, low, high int64) {
				t.Helper()
				counted := int64(0)
				for range 400 { // Envoy does not wait for the service when a stream is done
					if counted = countedByRatelimit(t, redis) / price; counted >= low {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
				if counted < low || counted > high {
					t.Errorf("%s: counted %d tokens, want %d to %d", what, counted, low, high)
				}
			}
			if got := l.call(t.Context(), address, draft{tokens: 40}); got != finished {
				t.Fatalf("outcome %d, want finished", got)
			}
			await("a whole stream", 40, 40)
			if got := l.call(t.Context(), address, draft{tokens: 1000, resetAfter: 20}); got != reset {
				t.Fatalf("outcome %d, want reset", got)
			}
			if o.countChunks {
				await("a stream that was reset", 60, 1000)
				if got := l.call(t.Context(), address, draft{tokens: 10}); got != denied {
					t.Errorf("above the budget: outcome %d, want denied", got)
				}
				return
			}
			if got := l.call(t.Context(), address, draft{tokens: 20}); got != finished {
				t.Fatalf("outcome %d, want finished", got)
			}
			await("a stream that was reset and a whole one", 60, 60)
		})
	}
}
