package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/llmcost"
)

// TestWhole checks calls that are not streams: the reservation covers max_tokens, and the cost is that of the usage.
func TestWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100_000)
	respond := func(usage string) {
		w.serve(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			write(rw, `{"choices": [{"message": {"role": "assistant", "content": "0123456789"}}]`+usage+`}`)
		})
	}
	used := int64(0)
	for _, test := range []struct {
		more, usage, forwarded string
		cost                   int
	}{
		{"", `, "usage": {"prompt_tokens": 3, "completion_tokens": 2}`, `"max_tokens":1024`, 2*3 + 10*2},
		{`, "max_tokens": 77`, `, "usage": {"prompt_tokens": 3, "completion_tokens": 2}`, `"max_tokens":77`, 2*3 + 10*2},
		{`, "max_completion_tokens": 77`, `, "usage": {"prompt_tokens": 3, "completion_tokens": 2}`, `"max_completion_tokens":77`, 2*3 + 10*2},
		{`, "max_tokens": 77`, ``, `"max_tokens":77`, 2*len(chat("paid", `, "max_tokens": 77`)) + 10*10},
		{`, "max_tokens": 4`, ``, `"max_tokens":4`, 2*len(chat("paid", `, "max_tokens": 4`)) + 10*4},
	} {
		respond(test.usage)
		got := w.send(chat("paid", test.more))
		body, _ := w.body.Load().(string)
		if got.status != http.StatusOK || !strings.Contains(got.text, "0123456789") || !strings.Contains(body, test.forwarded) {
			t.Errorf("%+v, forwarded %s", got, body)
		}
		used += int64(test.cost)
		w.expectUsed(used)
	}
	calls := w.calls.Load()
	if got := w.send(chat("paid", `, "max_tokens": 9990`)); got.status != http.StatusTooManyRequests || w.calls.Load() != calls {
		t.Errorf("%+v", got)
	}
	w.expectUsed(used)
}

// TestRejected checks that calls without a known key, model or valid numbers are neither forwarded nor charged.
func TestRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100_000_000)
	w.serve(endless)
	for _, test := range []struct{ body, want string }{
		{chat("unknown", ""), `400 model_not_found`},
		{chat("Tokens", ""), `400 model_not_found`},
		{chat("", ""), `400 invalid_request`},
		{`{"Model": "tokens"}`, `400 invalid_request`},
		{`[]`, `400 invalid_request`},
		{`null`, `400 invalid_request`},
		{`{"model": "tokens"`, `400 invalid_request`},
		{chat("tokens", `, "stream": "true"`), `400 invalid_request`},
		{chat("tokens", `, "stream_options": 1`), `400 invalid_request`},
		{chat("tokens", `, "max_tokens": -1`), `400 invalid_request`},
		{chat("tokens", `, "max_tokens": 1e3`), `400 invalid_request`},
		{chat("tokens", `, "max_tokens": 10000001`), `400 invalid_request`},
		{chat("tokens", `, "n": 0`), `400 invalid_request`},
		{chat("tokens", `, "n": -1, "stream": true`), `400 invalid_request`},
		{chat("tokens", `, "n": 129`), `400 invalid_request`},
		{chat("tokens", `, "max_tokens": 10000000`), `400 call_too_expensive`}, // the rule's max
		{chat("tokens", strings.Repeat(" ", maxBody+1)), `413 request_too_large`},
	} {
		got := w.send(test.body)
		var problem struct{ Error apiError }
		if err := json.Unmarshal([]byte(got.text), &problem); err != nil || fmt.Sprint(got.status, " ", problem.Error.Code) != test.want {
			t.Errorf("%.80s: %+v, want %s", test.body, got, test.want)
		}
	}
	for _, test := range []struct {
		method, path string
		keys         []string
		want         int
	}{
		{"POST", "/v1/chat/completions", nil, 401},
		{"POST", "/v1/chat/completions", []string{"Bearer wrong"}, 401},
		{"POST", "/v1/chat/completions", []string{"Bearer " + headgate.HashKey("key-of-acme")}, 401},
		{"POST", "/v1/chat/completions", []string{"Bearer key-of-acme", "Bearer wrong"}, 401},
		{"GET", "/v1/chat/completions", []string{"Bearer key-of-acme"}, 405},
		{"POST", "/v1/embeddings", []string{"Bearer key-of-acme"}, 404},
		{"POST", "/v1/chat/completions/../models", []string{"Bearer key-of-acme"}, 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, w.address+test.path, strings.NewReader(chat("tokens", "")))
		testenv.NoError(t, err)
		r.Header["Authorization"] = test.keys
		response, err := http.DefaultClient.Do(r)
		testenv.NoError(t, err)
		response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%+v: %d", test, response.StatusCode)
		}
	}
	if n := w.calls.Load(); n != 0 {
		t.Errorf("the model got %d calls", n)
	}
	w.expectUsed(0)
}

// TestHostileUsage checks that a usage that cannot be true neither makes a call cheaper nor uses up the budget.
func TestHostileUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1_000_000)
	used := int64(0)
	for _, usage := range []string{
		``,
		`{}`,
		`7`,
		`{"prompt_tokens": 0, "completion_tokens": 0}`,
		`{"prompt_tokens": 1, "completion_tokens": 0}`,
		`{"prompt_tokens": 0, "completion_tokens": 20}`,
		`{"prompt_tokens": -5, "completion_tokens": 20}`,
		`{"prompt_tokens": 5, "completion_tokens": -20}`,
		`{"prompt_tokens": 5, "completion_tokens": 9223372036854775807}`,
		`{"prompt_tokens": 9223372036854775807, "completion_tokens": 20}`,
		`{"prompt_tokens": 5, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 6}}`,
		`{"prompt_tokens": 5, "completion_tokens": 1e1}`,
	} {
		for _, stream := range []bool{true, false} {
			w.serve(func(rw http.ResponseWriter, _ *http.Request) {
				if !stream {
					write(rw, `{"choices": [{"message": {"content": "`+strings.Repeat("x", 280)+`"}}], "usage": `+cmp.Or(usage, "null")+`}`)
					return
				}
				begin(rw)
				emitTokens(rw, 280)
				finish(rw, usage)
			})
			body := chat("tokens", fmt.Sprintf(`, "max_tokens": 300, "stream": %v`, stream))
			if got := w.send(body); got.status != http.StatusOK {
				t.Fatalf("%+v", got)
			}
			used += int64(len(body) + 280)
			w.expectUsed(used)
		}
	}
}

// TestUsageInEveryEvent checks that a model that reports its usage with every event is trusted, unless the usage goes down.
func TestUsageInEveryEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100_000)
	body := chat("tokens", streamed)
	w.serve(func(rw http.ResponseWriter, r *http.Request) {
		begin(rw)
		for i := range 50 {
			emit(rw, fmt.Sprintf(`{"choices": [{"delta": {"content": "0123456789"}}], "usage": {"prompt_tokens": 9, "completion_tokens": %d}}`, 3*i+3))
		}
		emit(rw, `{"choices": [{"delta": {"content": "0123456789"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}`)
		panic(http.ErrAbortHandler)
	})
	w.send(body)
	w.expectUsed(9 + 150 + 10)
}

// TestMoreThanRequested checks that a model that produces more than was requested is paid, because it bills it.
func TestMoreThanRequested(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1_000_000)
	w.serve(func(rw http.ResponseWriter, _ *http.Request) {
		write(rw, `{"choices": [{"message": {"content": "`+strings.Repeat("x", 900)+`"}}], "usage": {"prompt_tokens": 5, "completion_tokens": 900}}`)
	})
	if got := w.send(chat("tokens", `, "max_tokens": 300`)); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	w.expectUsed(905)
}

// TestLeftBeforeResponse checks that a client that does not wait for a response pays for it: the model bills it.
func TestLeftBeforeResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1_000_000)
	arrived, left := make(chan struct{}), make(chan struct{})
	w.serve(func(rw http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-left
		write(rw, `{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 5, "completion_tokens": 300}}`)
	})
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.address+"/v1/chat/completions", strings.NewReader(chat("tokens", `, "max_tokens": 300`)))
	testenv.NoError(t, err)
	r.Header.Set("Authorization", "Bearer key-of-acme")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if response, err := http.DefaultClient.Do(r); err == nil {
			response.Body.Close()
		}
	}()
	<-arrived
	leave()
	<-done
	close(left)
	w.expectUsed(305)
}

// TestOtherSpellings checks that keys that the cost depends on cannot be written in a way that only some model servers understand.
func TestOtherSpellings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1_000_000)
	for _, more := range []string{`, "max_to\u212aens": 30000`, `, "Max_Tokens": 30000`, `, "Stream": true`, `, "MODEL": "gpt-4o"`, `, "N": 100`, `, "\u017ftream": true`} {
		if got := w.send(chat("tokens", `, "max_tokens": 20`+more)); got.status != http.StatusBadRequest || !strings.Contains(got.text, "unknown key: write ") {
			t.Errorf("%s: %+v", more, got)
		}
	}
	if n := w.calls.Load(); n != 0 {
		t.Errorf("the model got %d calls", n)
	}
}

// TestHiddenTokens checks that a call is charged for tokens that the client did not see, even over the budget.
func TestHiddenTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1000)
	w.serve(func(rw http.ResponseWriter, _ *http.Request) {
		begin(rw)
		emitTokens(rw, 10)
		finish(rw, `{"prompt_tokens": 20, "completion_tokens": 5000}`)
	})
	if got := w.send(chat("tokens", streamed)); !strings.HasSuffix(got.text, "[DONE]\n\n") || strings.Contains(got.text, "budget") {
		t.Error(got.text)
	}
	if got := w.send(chat("tokens", streamed)); got.status != http.StatusTooManyRequests {
		t.Errorf("%+v", got)
	}
	w.expectCharged(5020)
}

// TestRequests checks that the second rule counts calls, not their cost.
func TestRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1_000_000)
	w.serve(func(rw http.ResponseWriter, _ *http.Request) {
		begin(rw)
		emitTokens(rw, 1000) // three extensions
		finish(rw, `{"prompt_tokens": 20, "completion_tokens": 1000}`)
	})
	began := time.Now()
	allowed := 0
	for {
		got := w.send(chat("tokens", streamed))
		if got.status == http.StatusTooManyRequests {
			if !strings.Contains(got.text, `"code":"rate_limit_exceeded"`) || got.header.Get("Retry-After") == "" {
				t.Errorf("%+v", got)
			}
			break
		}
		allowed++
	}
	if highest := 60 + 1 + int(time.Since(began).Seconds()); allowed < 60 || allowed > highest {
		t.Errorf("%d calls, want 60 to %d", allowed, highest)
	}
	w.expectUsed(int64(allowed) * 1020)
}

// TestStoreUnavailable checks that calls are denied and streams stop while Redis is unavailable.
func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1_000_000)
	killed := make(chan struct{})
	w.serve(func(rw http.ResponseWriter, r *http.Request) {
		begin(rw)
		<-killed
		for r.Context().Err() == nil && emitTokens(rw, 1) {
		}
	})
	body := chat("tokens", streamed)
	response := w.post(t.Context(), body)
	w.redis.Kill()
	close(killed)
	text, err := io.ReadAll(response.body)
	testenv.NoError(t, err)
	if tokens, others := content(string(text)); tokens != firstOutput || !strings.Contains(others, `"finish_reason":"budget"`) {
		t.Errorf("%d tokens without Redis, want %d; %s", tokens, firstOutput, others)
	}
	got := w.send(body)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || !strings.Contains(got.text, `"code":"budget_unavailable"`) {
		t.Errorf("%+v", got)
	}
}

// TestService checks that a service decides like the library.
func TestService(t *testing.T) {
	t.Parallel()
	binary := testenv.BuildHeadgate(t)
	const budget = 2000
	w := newWorld(t, budget)
	address := testenv.FreeAddress(t)
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	testenv.NoError(t, os.WriteFile(config, []byte(`
listen: {http: off, grpc: "`+address+`", ops: off, admin: off}
redis: {address: "redis://`+w.redis.Addr()+`", deadline: 1s}
rules: ["`+w.rules+`"]
`), 0o600))
	service := testenv.Run(t, exec.Command(binary, "serve", "--config", config), address)
	var stop func()
	var err error
	w.proxy.budget, stop, err = useService([]string{address}, patience)
	testenv.NoError(t, err)
	t.Cleanup(stop)

	w.serve(func(rw http.ResponseWriter, _ *http.Request) {
		begin(rw)
		emitTokens(rw, 700)
		finish(rw, `{"prompt_tokens": 20, "completion_tokens": 300}`)
	})
	body := chat("tokens", streamed)
	w.send(body)
	w.expectUsed(320)
	w.serve(endless)
	if tokens, others := content(w.send(body).text); tokens != budget-320-len(body) || !strings.Contains(others, `"finish_reason":"budget"`) {
		t.Errorf("%d tokens, %s", tokens, others)
	}
	w.expectUsed(budget)
	if got := w.send(body); got.status != http.StatusTooManyRequests || !strings.Contains(got.text, "insufficient_quota") {
		t.Errorf("%+v", got)
	}
	service.Kill()
	if got := w.send(body); got.status != http.StatusServiceUnavailable {
		t.Errorf("%+v", got)
	}
}

// TestReadme runs the commands of the README and compares their output.
func TestReadme(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	text, err := os.ReadFile("README.md")
	testenv.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "```sh\n")
	script, rest, _ := strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "```\n")
	want, _, _ := strings.Cut(rest, "```")

	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./examples/llm", "./examples/llm/model")
	build.Dir = testenv.Repository(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	model, listen, redis := testenv.FreeAddress(t), testenv.FreeAddress(t), testenv.Start(t, testenv.Redis).Addr()
	script = strings.NewReplacer(
		"go run ./examples/llm/model", "exec "+bin+"/model "+model, "127.0.0.1:8090", listen,
		"go run ./examples/llm", "exec "+bin+"/llm -redis redis://"+redis+" -upstream http://"+model+" -listen "+listen,
	).Replace(script)
	command := exec.CommandContext(t.Context(), "bash", "-c", "trap 'kill $(jobs -p)' EXIT\n"+script)
	command.Dir = build.Dir
	got, err := command.Output()
	if err != nil || string(got) != want {
		t.Errorf("%v:\n%s\nwant:\n%s", err, got, want)
	}
}

func TestLoadTenants(t *testing.T) {
	t.Parallel()
	tenants, err := loadTenants("keys.txt")
	if err != nil || tenants[headgate.HashKey("demo-key-of-acme")] != "acme" || len(tenants) != 3 {
		t.Errorf("%v, %v", tenants, err)
	}
	for text, want := range map[string]string{"acme\n": ":1: must be a tenant and an API key", "\nacme sha256:short": ":2: key \"sha256:short\": incomplete hash"} {
		file := filepath.Join(t.TempDir(), "keys.txt")
		testenv.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := loadTenants(file); err == nil || !strings.HasPrefix(err.Error(), file+want) {
			t.Error(err)
		}
	}
	if _, err := llmcost.Load("prices.yaml"); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), []string{"-upstream", "nothing"}, io.Discard); err == nil || errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
