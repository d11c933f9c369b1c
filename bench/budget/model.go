package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// price is what the model charges for a token of output, in millionths of a dollar. The prompt is free: its price is known before
// the call, and the demo is about what is not.
const price = 75

// model is a fake language model with the API of OpenAI. It is the provider: what it has written is what the tenant has to pay.
type model struct {
	address string
	// pace is the time between two tokens of a stream.
	pace time.Duration
	// written is the number of tokens written to sockets.
	written atomic.Int64
	// running is the number of streams.
	running atomic.Int64
}

// call is the body of a request. MaxTokens is an upper bound, as in reality; the length of the response is in the prompt.
type call struct {
	Model         string          `json:"model"`
	Messages      []message       `json:"messages"`
	MaxTokens     int             `json:"max_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions map[string]bool `json:"stream_options"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// completions is the path of the API.
const completions = "/v1/chat/completions"

// prompt asks for a response of some tokens.
const prompt = "Write %d words."

// newModel starts a model that ends with the test.
func newModel(t testing.TB, pace time.Duration) *model {
	t.Helper()
	m := &model{address: testenv.FreeAddress(t), pace: pace}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", m.address)
	testenv.NoError(t, err)
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return m
}

// spent returns the bill so far.
func (m *model) spent() int64 { return price * m.written.Load() }

// ServeHTTP streams a response: a chunk for each token, then the usage.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c call
	var tokens int
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || len(c.Messages) == 0 {
		http.Error(w, fmt.Sprintf("invalid body: %v", err), http.StatusBadRequest)
		return
	}
	if _, err := fmt.Sscanf(c.Messages[0].Content, prompt, &tokens); err != nil {
		http.Error(w, "messages[0]: "+err.Error(), http.StatusBadRequest)
		return
	}
	m.running.Add(1)
	defer m.running.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	send := func(format string, args ...any) error {
		if _, err := fmt.Fprintf(w, "data: "+format+"\n\n", args...); err != nil {
			return err
		}
		return stream.Flush()
	}
	ticks := time.NewTicker(m.pace)
	defer ticks.Stop()
	for n := range min(tokens, c.MaxTokens) {
		select {
		case <-r.Context().Done():
			return
		case <-ticks.C:
		}
		if send(`{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word%d "},"finish_reason":null}]}`, n) != nil {
			return
		}
		m.written.Add(1)
	}
	n := min(tokens, c.MaxTokens)
	_ = send(`{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	_ = send(`{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":0,"completion_tokens":%d,"total_tokens":%d}}`, n, n)
	_ = send("[DONE]")
}
