package main

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestStream checks that events are relayed as they arrive, and that the cost is that of the usage, which the client sees only if it
// asks for it.
func TestStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1_000_000)
	used := int64(0)
	for _, more := range []string{"", `, "stream_options": null`, `, "stream_options": {"include_usage": false}`, `, "stream_options": {"include_usage": true}`} {
		next := make(chan struct{})
		w.serve(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer of-the-model" || r.URL.Path != "/v1/chat/completions" {
				w.Errorf("%s %v", r.URL, r.Header)
			}
			begin(rw)
			for range 1000 {
				emitTokens(rw, 1)
				<-next
			}
			finish(rw, `{"prompt_tokens": 30, "completion_tokens": 1001, "prompt_tokens_details": {"cached_tokens": 20}}`)
		})
		response := w.post(t.Context(), chat("paid", streamed+more+`, "service_tier": "priority", "model": "paid"`))
		lines := bufio.NewScanner(response.body)
		var text strings.Builder
		for lines.Scan() {
			text.WriteString(lines.Text() + "\n")
			if lines.Text() == "data: "+oneByte {
				next <- struct{}{} // the model waits until the client has its event
			}
		}
		tokens, others := content(text.String())
		if tokens != 1000 || !strings.HasSuffix(others, "data: [DONE]\n") || response.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%d tokens, %s", tokens, others)
		}
		if strings.Contains(others, "cached_tokens") != strings.Contains(more, "true") {
			t.Errorf("%s: %s", more, others)
		}
		body, _ := w.body.Load().(string)
		if !strings.Contains(body, `"stream_options":{"include_usage":true}`) || strings.Contains(body, "service_tier") || strings.Contains(body, "max_tokens") {
			t.Error(body)
		}
		used += 10*2 + 20/2 + 1001*10
		w.expectUsed(used)
	}
}

// TestStreamEndsAtBudget checks that a stream stops exactly where the budget ends, what the client sees, and that the next call is
// denied.
func TestStreamEndsAtBudget(t *testing.T) {
	t.Parallel()
	const budget = 2000
	w := newWorld(t, budget)
	w.serve(endless)
	body := chat("tokens", streamed+`, "n": 2`)
	got := w.send(body)
	tokens, others := content(got.text)
	if got.status != http.StatusOK || tokens != budget-len(body) {
		t.Errorf("%d, %d tokens, want %d", got.status, tokens, budget-len(body))
	}
	const end = `data: {"choices":[{"delta":{},"finish_reason":"budget","index":0}],"model":"tokens","object":"chat.completion.chunk"}
data: {"choices":[{"delta":{},"finish_reason":"budget","index":1}],"model":"tokens","object":"chat.completion.chunk"}
data: {"error":{"message":"budget exhausted: the stream was stopped","type":"insufficient_quota","param":null,"code":"budget_exhausted"}}
data: [DONE]
`
	if !strings.HasSuffix(others, end) {
		t.Error(others)
	}
	w.expectUsed(budget)
	for _, more := range []string{streamed, ""} {
		got = w.send(chat("tokens", more))
		wait, err := strconv.Atoi(got.header.Get("Retry-After"))
		if got.status != http.StatusTooManyRequests || err != nil || wait < 1 || wait > 31*24*3600 || got.header.Get("X-Should-Retry") != "false" ||
			got.text != `{"error":{"message":"budget exhausted: 0 of 2000/month in UTC left","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`+"\n" {
			t.Errorf("%+v", got)
		}
	}
	if n := w.calls.Load(); n != 1 {
		t.Errorf("the model got %d calls, want 1", n)
	}
	w.expectCharged(budget)
}

// TestConcurrentStreams checks that streams that share a budget do not exceed it together, and that it is used up to what the streams
// did not get at the same time.
func TestConcurrentStreams(t *testing.T) {
	t.Parallel()
	const budget, streams = 20_000, 20
	w := newWorld(t, budget)
	w.serve(endless)
	body := chat("tokens", streamed)
	var relayed, begun atomic.Int64
	var running sync.WaitGroup
	for range streams {
		running.Go(func() {
			got := w.send(body)
			tokens, _ := content(got.text)
			relayed.Add(int64(tokens))
			if got.status == http.StatusOK {
				begun.Add(1)
			}
		})
	}
	running.Wait()
	spent := relayed.Load() + begun.Load()*int64(len(body))
	if begun.Load() != streams || spent > budget || spent < budget*9/10 {
		t.Errorf("%d streams spent %d of %d", begun.Load(), spent, budget)
	}
	w.expectUsed(spent)
}

// TestClientDisconnects checks that a client pays for what was produced until it disconnects, and for the input if that is nothing.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	for _, tokens := range []int{0, 1, 600} {
		w := newWorld(t, 100_000)
		sent, stopped := make(chan struct{}), make(chan struct{})
		w.serve(func(rw http.ResponseWriter, r *http.Request) {
			begin(rw)
			emitTokens(rw, tokens)
			close(sent)
			<-r.Context().Done()
			close(stopped)
		})
		ctx, disconnect := context.WithCancel(t.Context())
		body := chat("tokens", streamed)
		response := w.post(ctx, body)
		lines := bufio.NewScanner(response.body)
		for got := 0; got < tokens && lines.Scan(); {
			if lines.Text() == "data: "+oneByte {
				got++
			}
		}
		<-sent
		disconnect()
		<-stopped // the model was stopped
		w.expectUsed(int64(len(body) + tokens))
	}
}

// TestModelFails checks that a tenant pays for what it got before the model failed, and nothing if it got nothing.
func TestModelFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100_000)
	body := chat("tokens", streamed)
	used := int64(0)
	for _, test := range []struct {
		model  func(http.ResponseWriter, *http.Request)
		status int
		text   string
		cost   int
	}{
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, "upstream_failed", 0},
		{func(rw http.ResponseWriter, _ *http.Request) {
			http.Error(rw, "broken", http.StatusInternalServerError)
		}, 500, "broken", 0},
		{func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "busy", http.StatusTooManyRequests) }, 429, "busy", 0},
		{func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/x", http.StatusFound) }, http.StatusFound, "", 0},
		{func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Content-Type", "text/event-stream") }, 502, "upstream_failed", 0},
		{func(rw http.ResponseWriter, _ *http.Request) { begin(rw); panic(http.ErrAbortHandler) }, 200, "upstream_failed", 0},
		{func(rw http.ResponseWriter, _ *http.Request) {
			begin(rw)
			emitTokens(rw, 500)
			panic(http.ErrAbortHandler)
		}, 200, "upstream_failed", len(body) + 500},
		{func(rw http.ResponseWriter, _ *http.Request) { begin(rw); emitTokens(rw, 7) }, 200, "upstream_failed", len(body) + 7}, // no [DONE]
		{func(rw http.ResponseWriter, _ *http.Request) {
			begin(rw)
			emitTokens(rw, 7)
			write(rw, "data: "+strings.Repeat("x", maxEvent))
		}, 200, "upstream_failed", len(body) + 7},
		{func(rw http.ResponseWriter, _ *http.Request) {
			begin(rw)
			emitTokens(rw, 7)
			emit(rw, "no JSON")
			finish(rw, "")
		}, 200, "no JSON", len(body) + 14},
		{func(rw http.ResponseWriter, _ *http.Request) {
			begin(rw)
			emitTokens(rw, 7)
			write(rw, ": a comment\r\n\r\nevent: x\r\ndata: [DONE]") // as some servers end
		}, 200, "", len(body) + 7},
	} {
		w.serve(test.model)
		got := w.send(body)
		if got.status != test.status || !strings.Contains(got.text, test.text) {
			t.Errorf("%d %.500s, want %d %s", got.status, got.text, test.status, test.text)
		}
		used += int64(test.cost)
		w.expectUsed(used)
	}
}
