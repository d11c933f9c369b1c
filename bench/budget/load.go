package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
)

// tenant is the tenant that has the budget.
const tenant = "acme"

// outcome is how a call ended.
type outcome int

const (
	finished outcome = iota // the client got the whole response
	stopped                 // the gateway ended the response where the budget ended
	reset                   // the client hung up
	denied                  // the gateway denied the call: 429
	failed                  // everything else: no connection, another status, a response that ends with an error or breaks off
	cut                     // the run ended first
	outcomes
)

// load is the demand of one side: clients that call a model again and again.
type load struct {
	plan *plan
	seed uint64
	// addresses are those of the gateways. A client that cannot reach one uses the next.
	addresses []string
	client    http.Client

	calls  [outcomes]atomic.Int64
	tokens atomic.Int64 // that clients received
}

// draft is one response that a client wants, the same for the nth call of a client on every side.
type draft struct {
	tokens int
	// resetAfter is the number of tokens after which the client hangs up; 0 means never.
	resetAfter int
}

func (l *load) draw(r *rand.Rand) draft {
	d := draft{tokens: l.plan.shortest + r.IntN(l.plan.longest-l.plan.shortest+1)}
	// Drawn in any case, so that the other calls do not depend on it.
	if at := 1 + r.IntN(d.tokens-1); r.Float64() < l.plan.resets {
		d.resetAfter = at
	}
	return d
}

// run runs the clients until ctx ends. It returns when all have ended.
func (l *load) run(ctx context.Context) {
	l.client.Transport = &http.Transport{MaxIdleConnsPerHost: l.plan.streams}
	defer l.client.CloseIdleConnections()
	var clients sync.WaitGroup
	for i := range l.plan.streams {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(l.seed, uint64(i)))
			gateway := i
			// They start within the time of a short response, so that they do not all end at the same time.
			suite.SleepUntil(ctx, time.Now().Add(time.Duration(random.Int64N(int64(l.plan.shortest)*int64(l.plan.pace)))))
			for d := l.draw(random); ctx.Err() == nil; {
				got := l.call(ctx, l.addresses[gateway%len(l.addresses)], d)
				l.calls[got].Add(1)
				switch got {
				case denied, failed: // the same again
					if got == failed {
						gateway++
					}
					suite.SleepUntil(ctx, time.Now().Add(l.plan.retry+time.Duration(random.Int64N(int64(l.plan.retry)))))
				default:
					d = l.draw(random)
				}
			}
		})
	}
	clients.Wait()
}

// call sends one call and reads its response.
func (l *load) call(ctx context.Context, address string, d draft) outcome {
	hangUp, cancel := context.WithCancel(ctx)
	defer cancel()
	got, err := l.send(hangUp, address, d)
	if err != nil {
		got = failed
		if ctx.Err() != nil {
			got = cut
		}
	}
	return got
}

// event is what a client reads of an event of a stream.
type event struct {
	Choices []struct {
		Delta        struct{ Content string }
		FinishReason string `json:"finish_reason"`
	}
	Error any
}

var errBroken = errors.New("the response broke off")

// send sends one call, and returns how it ended or an error. If it returns reset, the caller cancels the context.
func (l *load) send(ctx context.Context, address string, d draft) (outcome, error) {
	body, err := json.Marshal(call{
		Model: "fake", Messages: []message{{"user", fmt.Sprintf(prompt, d.tokens)}}, MaxTokens: 4096,
		Stream: true, StreamOptions: map[string]bool{"include_usage": true},
	})
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+completions, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Tenant", tenant)
	response, err := l.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests:
		return denied, nil
	default:
		return 0, errors.New(response.Status)
	}
	return l.read(response, d)
}

// read reads a response.
func (l *load) read(response *http.Response, d draft) (outcome, error) {
	got, received := finished, 0
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			return got, nil
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return 0, err
		}
		if e.Error != nil {
			return 0, fmt.Errorf("%v", e.Error)
		}
		for _, c := range e.Choices {
			if c.FinishReason != "" && c.FinishReason != "stop" {
				got = stopped
			}
			if c.Delta.Content != "" {
				received++
				l.tokens.Add(1)
			}
		}
		if received == d.resetAfter && received > 0 {
			return reset, nil
		}
	}
	return 0, errors.Join(errBroken, lines.Err())
}
