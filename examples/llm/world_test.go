package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/llmcost"
)

// The prices of the tests: with "tokens" a unit is a token, and "paid" has a price for each kind.
const testPrices = `
models:
  tokens: {input: 1, output: 1}
  paid: {input: 2, cached: 0.5, output: 10}
`

// world is a proxy in front of a model, with counters in a Redis of its own.
type world struct {
	*testing.T
	proxy   *proxy
	address string
	redis   *testenv.Server
	rules   string
	model   atomic.Value // an http.HandlerFunc, which serves the calls that reach the model
	calls   atomic.Int64
	// body is the request that the model got last.
	body atomic.Value
}

// newWorld starts a proxy whose tenant acme has a budget, with the rules of the example.
func newWorld(t *testing.T, budget int) *world {
	t.Helper()
	w := &world{T: t, redis: testenv.Start(t, testenv.Redis)}
	model := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.calls.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.body.Store(string(body))
		w.model.Load().(http.HandlerFunc)(rw, r)
	}))
	t.Cleanup(model.Close)
	rules, err := os.ReadFile("rules.yaml")
	testenv.NoError(t, err)
	w.rules = filepath.Join(t.TempDir(), "rules.yaml")
	testenv.NoError(t, os.WriteFile(w.rules, []byte(strings.Replace(string(rules), "quota: 20_000_000", "quota: "+strconv.Itoa(budget), 1)), 0o600))

	w.proxy = &proxy{upstreamKey: "of-the-model", tenants: map[string]string{headgate.HashKey("key-of-acme"): "acme"}, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	w.proxy.upstream, err = url.Parse(model.URL)
	testenv.NoError(t, err)
	w.proxy.prices, err = llmcost.Parse("prices.yaml", []byte(testPrices))
	testenv.NoError(t, err)
	w.proxy.identity, err = identity.New(identity.Options{APIKey: identity.APIKey{Header: "Authorization"}})
	testenv.NoError(t, err)
	var stop func()
	w.proxy.budget, stop, err = useRedis(t.Context(), "redis://"+w.redis.Addr(), w.rules, patience)
	testenv.NoError(t, err)
	t.Cleanup(stop)
	server := httptest.NewServer(w.proxy)
	t.Cleanup(server.Close)
	w.address = server.URL
	return w
}

// serve has the model answer calls with a function from now on.
func (w *world) serve(model http.HandlerFunc) { w.model.Store(model) }

// reply is a response of the proxy.
type reply struct {
	status int
	header http.Header
	body   io.Reader
	text   string // the body, if send has read it
}

// post sends a request and returns the response, whose body the caller reads.
func (w *world) post(ctx context.Context, body string) reply {
	w.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.address+"/v1/chat/completions", strings.NewReader(body))
	testenv.NoError(w, err)
	r.Header.Set("Authorization", "Bearer key-of-acme")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { response.Body.Close() })
	return reply{status: response.StatusCode, header: response.Header, body: response.Body}
}

// send sends a request and reads the response.
func (w *world) send(body string) reply {
	w.Helper()
	got := w.post(w.Context(), body)
	data, err := io.ReadAll(got.body)
	testenv.NoError(w, err)
	got.text = string(data)
	return got
}

type peeker interface {
	Peek(ctx context.Context, req headgate.Request) (headgate.Decision, error)
}

// used returns how much of the budget is used.
func (w *world) used() int64 {
	w.Helper()
	d, err := w.proxy.budget.(peeker).Peek(w.Context(), headgate.Request{
		Rule: "budget", Attributes: headgate.Attributes{"tenant": "acme", "descriptor.cost": "1"},
	})
	testenv.NoError(w, err)
	return d.Limits[0].Limit.Count - d.Limits[0].Remaining
}

// patience is how long tests wait on a busy machine.
const patience = 20 * time.Second

// expectUsed waits until the call that ended last is settled.
func (w *world) expectUsed(want int64) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for w.used() != want {
		if time.Now().After(deadline) {
			w.Fatalf("%d units are used, want %d", w.used(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// expectCharged refunds all that was charged, which may be more than the budget.
func (w *world) expectCharged(want int64) {
	w.Helper()
	d, err := w.proxy.budget.(*headgate.Limiter).Refund(w.Context(), headgate.Request{
		Rule: "budget", Cost: headgate.MaxCost, Attributes: headgate.Attributes{"tenant": "acme"},
	})
	if got := d.Limits[0].Granted; err != nil || got != want {
		w.Errorf("%d units were charged, want %d: %v", got, want, err)
	}
}

// chat returns the body of a request for a model. More has further fields.
func chat(model, more string) string {
	return `{"model": "` + model + `", "messages": [{"role": "user", "content": "Hello"}]` + more + `}`
}

const streamed = `, "stream": true`

// begin begins a stream.
func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	emit(w, `{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}`)
}

// write writes to the proxy, and reports whether the proxy still reads.
func write(w http.ResponseWriter, text string) bool {
	_, err := io.WriteString(w, text)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

// emit sends an event to the proxy, and reports whether the proxy still reads.
func emit(w http.ResponseWriter, data string) bool {
	return write(w, "data: "+data+"\n\n")
}

// oneByte is an event whose token has one byte.
const oneByte = `{"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": null}], "usage": null}`

// emitTokens sends tokens, and reports whether the proxy still reads.
func emitTokens(w http.ResponseWriter, n int) bool {
	for range n {
		if !emit(w, oneByte) {
			return false
		}
	}
	return true
}

// endless streams until the proxy disconnects.
func endless(w http.ResponseWriter, r *http.Request) {
	begin(w)
	for r.Context().Err() == nil && emitTokens(w, 1) {
	}
}

// finish ends a stream with a usage, or without one.
func finish(w http.ResponseWriter, usage string) {
	emit(w, `{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}`)
	if usage != "" {
		emit(w, `{"choices": [], "usage": `+usage+`}`)
	}
	emit(w, "[DONE]")
}

// content returns the tokens of a stream, and the events without tokens.
func content(text string) (tokens int, others string) {
	for event := range strings.SplitSeq(text, "\n\n") {
		if event == "data: "+oneByte {
			tokens++
		} else if event != "" {
			others += event + "\n"
		}
	}
	return tokens, others
}
