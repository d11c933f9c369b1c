package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	const budget = 1_000_000
	p := plan{budget: budget, leastUsed: 0.97}
	for spent, want := range map[int64]string{
		budget:          "true true",
		budget + 1:      "false true",
		budget * 3 / 2:  "false true",
		970_000:         "true true",
		970_000 - price: "true false",
		0:               "true false",
	} {
		got := p.verdict(spent)
		if met := fmt.Sprint(got[0].Met, " ", got[1].Met); met != want {
			t.Errorf("spent %d of %d: met %s, want %s: %v", spent, budget, met, want, got)
		}
	}
}

// The share that a run may leave unused must be possible with its chunks.
func TestUnusable(t *testing.T) {
	for name, p := range map[string]*plan{"full": &full, "short": &short} {
		if share := used(p.unusable(), p.budget); share > 1-p.leastUsed {
			t.Errorf("%s: %.2f %% of the budget may be unusable, and %.0f %% have to be used", name, 100*share, 100*p.leastUsed)
		}
	}
}

func TestDrawsAreTheSameForEverySide(t *testing.T) {
	l := load{plan: &full}
	random, again, resets := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2)), 0
	for range 1000 {
		d := l.draw(random)
		if other := l.draw(again); d != other {
			t.Fatalf("%+v, then %+v", d, other)
		}
		if d.tokens < full.shortest || d.tokens > full.longest || d.resetAfter < 0 || d.resetAfter >= d.tokens {
			t.Fatalf("%+v: must be within %d and %d tokens", d, full.shortest, full.longest)
		}
		if d.resetAfter > 0 {
			resets++
		}
	}
	if resets < 70 || resets > 130 {
		t.Errorf("%d of 1000 are reset, want about 100", resets)
	}
}

// The bill is what the model wrote: all of a response, and of a reset one what the client read and a little more.
func TestBill(t *testing.T) {
	m := newModel(t, time.Millisecond)
	l := load{plan: &full}
	for range 5 {
		if got := l.call(t.Context(), m.address, draft{tokens: 20}); got != finished {
			t.Fatalf("outcome %d, want finished", got)
		}
	}
	if got, want := m.spent(), int64(5*20*price); got != want || l.tokens.Load() != 100 {
		t.Errorf("spent %d for %d tokens, want %d", got, l.tokens.Load(), want)
	}
	if got := l.call(t.Context(), m.address, draft{tokens: 1_000_000, resetAfter: 7}); got != reset {
		t.Fatalf("outcome %d, want reset", got)
	}
	for m.running.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if got := m.written.Load() - 100; got < 7 || got > 4096-1 {
		t.Errorf("billed %d tokens of a stream that was reset after 7", got)
	}
	if got := l.tokens.Load() - 100; got != 7 {
		t.Errorf("the client received %d tokens, want 7", got)
	}
}

func TestOutcomes(t *testing.T) {
	const token = `data: {"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}` + "\n\n"
	l := load{plan: &full}
	for body, want := range map[string]outcome{
		token + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n":   finished,
		token + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n": stopped,
		token + `data: {"error":{"message":"unavailable"}}` + "\n\n":                                           failed,
		token:                failed,
		token + token:        reset,
		"data: nonsense\n\n": failed,
		"429":                denied,
		"503":                failed,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch body {
			case "429":
				w.WriteHeader(http.StatusTooManyRequests)
			case "503":
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				_, _ = w.Write([]byte(body))
			}
		}))
		got := l.call(t.Context(), strings.TrimPrefix(server.URL, "http://"), draft{tokens: 10, resetAfter: 2})
		server.Close()
		if got != want {
			t.Errorf("%q: outcome %d, want %d", body, got, want)
		}
	}
	if got := l.call(t.Context(), "127.0.0.1:1", draft{tokens: 10}); got != failed {
		t.Errorf("no gateway: outcome %d, want failed", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := l.call(ended, "127.0.0.1:1", draft{tokens: 10}); got != cut {
		t.Errorf("after the end: outcome %d, want cut", got)
	}
}

// Each call of a load has one outcome, and the tokens that clients read are at most those that the model billed.
func TestLoad(t *testing.T) {
	m := newModel(t, time.Millisecond)
	l := load{plan: &plan{streams: 5, pace: time.Millisecond, shortest: 5, longest: 20, resets: 0.3, retry: time.Millisecond}}
	l.addresses = []string{"127.0.0.1:1", m.address}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	l.run(ctx)
	if l.calls[finished].Load() == 0 || l.calls[reset].Load() == 0 || l.calls[failed].Load() == 0 || l.calls[stopped].Load()+l.calls[denied].Load() > 0 {
		t.Errorf("outcomes %v", &l.calls)
	}
	for m.running.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if received, written := l.tokens.Load(), m.written.Load(); received == 0 || received > written {
		t.Errorf("clients received %d of %d tokens", received, written)
	}
}
