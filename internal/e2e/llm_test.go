package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// modelServer stands in for a model server. The path of a request is /v1/chat/completions; serve writes the response.
type modelServer struct {
	address string
	serve   func(w http.ResponseWriter, r *http.Request)
}

func newModelServer(t testing.TB) *modelServer {
	t.Helper()
	m := &modelServer{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Tenant") == "" || r.Header.Get("Authorization") != "" {
			t.Errorf("the model got %v", r.Header)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		m.serve(w, r)
	}))
	t.Cleanup(server.Close)
	m.address = server.Listener.Addr().String()
	return m
}

// emit sends events of a stream.
func emit(w http.ResponseWriter, events ...string) {
	for _, event := range events {
		_, _ = io.WriteString(w, "data: "+event+"\n\n") // an error means that Envoy has disconnected
		_ = http.NewResponseController(w).Flush()
	}
}

// word is an event of a stream, with what a client could write to forge a usage.
const word = `{"model": "gpt-4o-mini-2024-07-18", "choices": [{"delta": {"content": "\"usage\": {\"prompt_tokens\": 1, \"completion_tokens\": 1}"}}], "usage": null}`

// TestEnvoyBudget tests the budget with Envoy in examples/llm: an estimate is charged before the call and corrected after it.
func TestEnvoyBudget(t *testing.T) {
	binary := testenv.BuildHeadgate(t)
	model := newModelServer(t)
	w := &world{t: t, binary: binary, addresses: map[string]string{
		"127.0.0.1:6379": testenv.Start(t, testenv.Redis).Addr(),
		"127.0.0.1:8080": testenv.FreeAddress(t),
		"127.0.0.1:8081": testenv.FreeAddress(t),
		"127.0.0.1:8090": testenv.FreeAddress(t),
		"127.0.0.1:9000": model.address,
	}}
	dir := w.render("llm", "deadline: 250ms", "deadline: 1s", "timeout: 0.5s", "timeout: 5s") // the machine may be busy
	w.config = filepath.Join(dir, "headgate.yaml")
	w.start()
	envoy := exec.Command(testenv.Find(t, "envoy"), "-c", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id", "-l", "error")
	envoy.Dir = dir
	testenv.Run(t, envoy, w.addresses["127.0.0.1:8090"])
	testEnvoyBudget(w, model)
}

func testEnvoyBudget(w *world, model *modelServer) {
	const budget, fixed, body = 20_000_000, 5000, `{"model": "gpt-4o-mini", "stream": true}`
	used := func() int { return budget - w.remaining("budget", "acme") }
	expect := func(what string, want int) {
		w.t.Helper()
		eventually(w.t, fmt.Sprintf("%s: %d units used", what, want), func() bool { return used() == want })
	}
	c := newClient(w.t, w.addresses["127.0.0.1:8090"], "127.0.0.2")
	c.headers = http.Header{"Authorization": {"Bearer demo-key-of-acme"}, "X-Tenant": {"globex"}}
	send := func(want int) {
		w.t.Helper()
		if got := c.send("POST", "/v1/chat/completions", body); got.status != want {
			w.t.Errorf("%d, want %d: %.300s", got.status, want, got.body)
		}
	}

	estimate, total := fixed+len(body), 0
	for _, test := range []struct {
		name  string
		serve func(http.ResponseWriter)
		cost  int
	}{
		{"usage of a stream", func(rw http.ResponseWriter) {
			emit(rw, word, word, `{"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 40}}}`, "[DONE]")
		}, 9 + 3 + 30},
		{"more than the estimate", func(rw http.ResponseWriter) {
			emit(rw, word, `{"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10000}}`, "[DONE]")
		}, 15 + 6000},
		{"no stream", func(rw http.ResponseWriter) {
			_, _ = io.WriteString(rw, `{"model": "gpt-4o", "usage": {"prompt_tokens": 10, "completion_tokens": 5}, "choices": []}`)
		}, 25 + 50},
		{"no usage", func(rw http.ResponseWriter) { emit(rw, word, "[DONE]") }, estimate},
		{"negative usage", func(rw http.ResponseWriter) {
			emit(rw, word, `{"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": -50}}`, "[DONE]")
		}, estimate},
		{"absurd usage", func(rw http.ResponseWriter) {
			emit(rw, word, `{"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 99999999999999999999}}`, "[DONE]")
		}, estimate},
		{"unknown model", func(rw http.ResponseWriter) {
			emit(rw, `{"model": "other", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}`, "[DONE]")
		}, estimate},
	} {
		proceed := make(chan struct{})
		model.serve = func(rw http.ResponseWriter, _ *http.Request) {
			<-proceed
			test.serve(rw)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			send(200)
		}()
		expect(test.name+", before the response", total+estimate)
		close(proceed)
		<-done
		total += test.cost
		expect(test.name, total)
	}

	model.serve = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) }
	send(500)
	expect("failed call", total)

	// A client that resets the stream pays for its events.
	const events = 2000
	model.serve = func(rw http.ResponseWriter, r *http.Request) {
		for range events {
			emit(rw, word)
		}
		<-r.Context().Done()
	}
	w.readEvents(c, body, events)
	total += events * 10
	expect("reset stream", total)

	// A call over the budget is recorded in full, and the next one denied. Denied calls are neither charged nor refunded.
	model.serve = func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(rw, `{"model": "gpt-4o", "usage": {"prompt_tokens": 10, "completion_tokens": %d}, "choices": []}`, (budget-total)/10)
	}
	send(200)
	expect("all", budget)
	for range 3 {
		send(429)
	}
	expect("denied calls", budget)
	c.headers = http.Header{"X-Tenant": {"acme"}}
	send(401)
}

// readEvents sends a request, reads so many events of its stream and resets it.
func (w *world) readEvents(c *client, body string, events int) {
	w.t.Helper()
	ctx, reset := context.WithCancel(w.t.Context())
	defer reset()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.gateway+"/v1/chat/completions", strings.NewReader(body))
	testenv.NoError(w.t, err)
	request.Header = c.headers.Clone()
	response, err := c.http.Do(request)
	testenv.NoError(w.t, err)
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); events > 0 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") {
			events--
		}
	}
}
