package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// gatewayFlag is the argument with which this program is a gateway; the next one is its settings in JSON.
const gatewayFlag = "-gateway"

// settings are those of a gateway.
type settings struct {
	Listen, Redis, Model string
	// Budget is in millionths of a dollar, Chunk in tokens.
	Budget, Chunk int64
}

// gateway is a proxy in front of a model that keeps each tenant within its budget, with the library in its own process. It is a
// smaller examples/llm for a model whose chunks are known to be one token each, so that it can reserve little at a time.
type gateway struct {
	settings
	limiter *headgate.Limiter
}

const (
	// hold is much longer than a chunk takes, so that a commit can always give back what was not used.
	hold = time.Minute
	// slack is the number of tokens that a model may produce after the last one that the gateway has read, before it notices that
	// the gateway has hung up. They are reserved for each stream and charged if it does not end by itself, because they are on the
	// bill of the model.
	slack = 2
)

// budgetRule returns the rule of a budget that nothing exceeds: what a killed gateway has reserved stays charged, and without Redis nothing
// is admitted.
func budgetRule(budget int64) headgate.Rule {
	return headgate.Rule{
		ID: "budget", By: []string{"tenant"}, Limit: headgate.Quota(budget, headgate.Month, nil),
		OnHoldExpiry: headgate.ChargeHold, OnStoreFailure: headgate.FailDeny,
	}
}

// request returns a request of a tenant that costs so much.
func request(tenant string, cost int64) headgate.Request {
	return headgate.Request{Attributes: headgate.Attributes{"tenant": tenant}, Cost: cost}
}

// serveGateway runs a gateway until the process is killed.
func serveGateway(text string) error {
	g := &gateway{}
	if err := json.Unmarshal([]byte(text), &g.settings); err != nil {
		return err
	}
	redis, err := redisstore.Open(g.Redis)
	if err != nil {
		return err
	}
	// A model takes seconds, so a call may wait longer for Redis than a decision usually does.
	store := storewrap.New(redis, storewrap.Options{Deadline: 250 * time.Millisecond, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if g.limiter, err = headgate.New(store, budgetRule(g.Budget)); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := redis.Ready(ready); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ready, "tcp", g.Listen)
	if err != nil {
		return err
	}
	return (&http.Server{Handler: g, ReadHeaderTimeout: time.Minute}).Serve(listener)
}

// ServeHTTP reserves the first chunk of a response and forwards the call.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := &stream{gateway: g, tenant: r.Header.Get("X-Tenant")}
	held, err := g.limiter.Reserve(r.Context(), request(s.tenant, g.Chunk*price), hold)
	switch {
	case err != nil || held.Decision.Path == headgate.PathFailed:
		http.Error(w, "the budget cannot be checked", http.StatusServiceUnavailable)
		return
	case !held.Decision.Allowed:
		http.Error(w, "the budget is exhausted", http.StatusTooManyRequests)
		return
	}
	s.token, s.covered = held.Token, held.Covered
	// A client that hangs up does not keep the stream from being settled.
	defer s.commit(context.WithoutCancel(r.Context()))
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	forwarded, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.Model+completions, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	forwarded.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(forwarded)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = response.Body.Close() }()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	s.relay(ctx, w, response)
}

// stream is one response and its reservation.
type stream struct {
	*gateway
	tenant string
	token  []byte
	// used is the cost of the tokens that were read, covered that of those that may be produced.
	used, covered int64
	// unavailable is whether the last extension failed.
	unavailable bool
	// complete is whether the model has ended the response by itself.
	complete bool
}

// relay forwards the response line by line, and ends it where the budget does.
func (s *stream) relay(ctx context.Context, w http.ResponseWriter, response *http.Response) {
	client := http.NewResponseController(w)
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // the model or the client has hung up
		}
		if bytes.Contains(line, []byte(`"content":"`)) {
			s.used += price
		}
		s.complete = s.complete || bytes.Contains(line, []byte(`"usage":{`))
		if _, err := w.Write(line); err != nil {
			return
		}
		if len(line) > 1 {
			continue // an event ends with an empty line
		}
		if client.Flush() != nil {
			return
		}
		if !s.complete && !s.extend(ctx) {
			end := `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n"
			if s.unavailable {
				end = `data: {"error":{"message":"the budget cannot be checked"}}` + "\n\n"
			}
			_, _ = fmt.Fprint(w, end)
			return
		}
	}
}

// extend reports whether the model may produce another token. It reserves the next chunk one token before the slack begins, so that
// a chunk that Redis did not grant is asked for twice.
func (s *stream) extend(ctx context.Context) bool {
	if s.left() <= slack+1 {
		ctx = context.WithoutCancel(ctx) // the new token must not get lost
		held, err := s.limiter.Extend(ctx, s.token, request(s.tenant, s.used), request(s.tenant, s.used+s.Chunk*price), hold)
		s.token, s.unavailable = held.Token, err != nil || held.Decision.Path == headgate.PathFailed
		// Without a response, what was covered before is charged nevertheless. With one it is part of what is covered now: Extend
		// gives it back and takes it again in one step.
		if !s.unavailable && held.Decision.Allowed {
			s.covered = held.Covered
		}
	}
	return s.left() > slack
}

// left returns the number of tokens that are covered and that the gateway has not read.
func (s *stream) left() int64 { return (s.covered - s.used) / price }

// commit charges what the model has billed, or at most may have.
func (s *stream) commit(ctx context.Context) {
	cost := s.used
	if !s.complete {
		cost = min(s.used+slack*price, s.covered)
	}
	if _, err := s.limiter.Commit(ctx, s.token, request(s.tenant, cost)); err != nil {
		slog.Warn("stream not settled; what was reserved stays charged", "tenant", s.tenant, "error", err)
	}
}
