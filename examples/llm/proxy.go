package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/llmcost"
)

// maxBody is the largest request.
const maxBody = 8 << 20

// proxy forwards chat completions to a model server within the budget of the tenant.
type proxy struct {
	upstream    *url.URL
	upstreamKey string
	budget      budget
	prices      *llmcost.Prices
	identity    *identity.Resolver
	tenants     map[string]string // by the hash of their API key
	log         *slog.Logger
}

// transport does not follow redirects and does not compress, which would delay events.
var transport = &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true, MaxIdleConnsPerHost: 100, IdleConnTimeout: time.Minute}

// ServeHTTP serves POST /v1/chat/completions. Other endpoints are not forwarded: they would be free.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tenant, ok := p.tenants[p.identity.Attributes(r)["api_key"]]
	switch {
	case r.URL.Path != "/v1/chat/completions":
		writeError(w, http.StatusNotFound, apiError{Type: "invalid_request_error", Code: "unknown_url", Message: "only /v1/chat/completions is served"})
		return
	case r.Method != http.MethodPost:
		writeError(w, http.StatusMethodNotAllowed, apiError{Type: "invalid_request_error", Code: "method_not_allowed", Message: "must be POST"})
		return
	case !ok:
		writeError(w, http.StatusUnauthorized, apiError{Type: "invalid_request_error", Code: "invalid_api_key", Message: "unknown API key"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, http.StatusRequestEntityTooLarge, apiError{Type: "invalid_request_error", Code: "request_too_large", Message: err.Error()})
		return
	}
	request, err := parseRequest(body)
	if err != nil {
		writeError(w, http.StatusBadRequest, apiError{Type: "invalid_request_error", Code: "invalid_request", Message: err.Error()})
		return
	}
	price, ok := p.prices.Model(request.model)
	if !ok {
		writeError(w, http.StatusBadRequest, apiError{
			Type: "invalid_request_error", Code: "model_not_found", Message: "model " + strconv.Quote(request.model) + " has no price",
		})
		return
	}
	c := &call{proxy: p, tenant: tenant, request: request, meter: newMeter(price, len(body), request.maxOutput)}
	if !c.reserve(r.Context(), w) {
		return
	}
	defer c.settle(r.Context())
	c.forward(r.Context(), w)
}

// forward sends the call to the model and its response to the client.
func (c *call) forward(client context.Context, w http.ResponseWriter) {
	ctx := client
	if !c.request.stream {
		ctx = context.WithoutCancel(client) // the model bills the whole response, even if the client leaves before it
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.exchange(ctx, w)
	switch {
	case err == nil:
	case client.Err() != nil:
		c.charged = true // the model may have read the input, so the client pays for it
	case errors.Is(err, errBudget):
		c.charged = true
		c.stop(w)
	case c.started:
		c.log.WarnContext(ctx, "stream of the model failed; charging what was relayed", "tenant", c.tenant, "error", err)
		_ = c.send(w, event(map[string]any{"error": upstreamFailed}))
	default:
		c.log.WarnContext(ctx, "model server failed; charging nothing", "tenant", c.tenant, "error", err)
		writeError(w, http.StatusBadGateway, upstreamFailed)
	}
}

// exchange forwards the call and relays the response.
func (c *call) exchange(ctx context.Context, w http.ResponseWriter) error {
	address := c.upstream.JoinPath("/v1/chat/completions").String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(c.request.body()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.upstreamKey != "" {
		request.Header.Set("Authorization", "Bearer "+c.upstreamKey)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind == "text/event-stream" && response.StatusCode == http.StatusOK {
		return c.relay(ctx, w, response.Body)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusOK {
		c.charged = true
		if c.count(body); c.meter.maxOutput > 0 { // the model has not reported a usage, or it is at most this anyway
			c.meter.since = min(c.meter.since, c.meter.maxOutput)
		}
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if value := response.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(response.StatusCode)
	c.started = true
	_, err = w.Write(body)
	return err
}

// stop ends a stream at the end of the budget: a chunk with finish_reason "budget" for each choice, an error, and [DONE].
func (c *call) stop(w http.ResponseWriter) {
	var text []byte
	for i := range c.request.choices {
		text = append(text, event(map[string]any{
			"object": "chat.completion.chunk", "model": c.request.model,
			"choices": []any{map[string]any{"index": i, "delta": struct{}{}, "finish_reason": "budget"}},
		})...)
	}
	text = append(text, event(map[string]any{"error": apiError{
		Type: quotaType, Code: "budget_exhausted", Message: "budget exhausted: the stream was stopped",
	}})...)
	_ = c.send(w, append(text, "data: [DONE]\n\n"...)) // an error means that the client disconnected
}

// event returns a server-sent event.
func event(value any) []byte {
	data, _ := json.Marshal(value) // cannot fail: texts and numbers only
	return append(append([]byte("data: "), data...), "\n\n"...)
}

// apiError is an error in the form of the OpenAI API.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

const quotaType = "insufficient_quota"

var upstreamFailed = apiError{Type: "api_error", Code: "upstream_failed", Message: "the model server failed"}

// writeError writes an error response.
func writeError(w http.ResponseWriter, status int, e apiError) {
	body, _ := json.Marshal(map[string]apiError{"error": e}) // cannot fail: texts only
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client disconnected
}

// writeUnavailable writes the response to a call that nothing could decide.
func writeUnavailable(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	writeError(w, http.StatusServiceUnavailable, apiError{
		Type: "api_error", Code: "budget_unavailable", Message: "the budget cannot be checked at the moment",
	})
}

// writeDenied writes the response to a denied call.
func writeDenied(w http.ResponseWriter, d *headgate.Decision) {
	l := d.DeniedBy()
	if l == nil || l.Err != nil {
		writeUnavailable(w)
		return
	}
	e := apiError{Type: "requests", Code: "rate_limit_exceeded", Message: "rate limit exceeded: " + l.Rule + " allows " + l.Limit.String()}
	if l.Rule == "budget" {
		e = apiError{Type: quotaType, Code: "insufficient_quota", Message: "budget exhausted: " + strconv.FormatInt(l.Remaining, 10) + " of " + l.Limit.String() + " left"}
		w.Header().Set("X-Should-Retry", "false") // for OpenAI's own clients
	}
	if d.RetryAfter != headgate.Never {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((d.RetryAfter+time.Second-1)/time.Second), 10))
	}
	writeError(w, http.StatusTooManyRequests, e)
}
