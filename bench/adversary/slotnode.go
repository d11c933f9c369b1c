package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/httplimit"
)

// Headers of a request to a node, which it forwards to the backend with those of the second group.
const (
	headerSubject = "X-Subject"
	headerCost    = "X-Cost"
	headerLimit   = "X-Limit"
	headerHold    = "X-Hold"  // how long the backend works, in microseconds
	headerPanic   = "X-Panic" // the handler panics

	headerNode    = "X-Node"
	headerPath    = "X-Path"    // that decided
	headerDecided = "X-Decided" // when, in microseconds since 1970

	subjectAttribute = "header.x-subject"
)

// decided is what a node's observer says about a request.
type decided struct {
	path string
	at   int64
}

type decidedKey struct{}

// serve serves HTTP behind the middleware. The handler forwards requests to the backend.
func (n *Worker) serve() error {
	limiter := n.limiter.WithObserver(func(ctx context.Context, o *headgate.Observation) {
		if d, ok := ctx.Value(decidedKey{}).(*decided); ok {
			*d = decided{string(o.Decision.Path), time.Now().UnixMicro()}
		}
	})
	limited := httplimit.New(limiter, httplimit.Options{})(n.forward())
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), // of panics
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), decidedKey{}, &decided{})))
		}),
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", n.spec.Listen)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(listener) }() // until this process ends
	go n.watch()
	return nil
}

// forward returns a handler that calls the backend and returns when the backend has ended, even if the client has left: only then
// may its units be released.
func (n *Worker) forward() http.Handler {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithoutCancel(r.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.spec.Backend, http.NoBody)
		if err != nil {
			panic(err)
		}
		for _, name := range []string{headerSubject, headerCost, headerLimit, headerHold} {
			request.Header.Set(name, r.Header.Get(name))
		}
		d, _ := ctx.Value(decidedKey{}).(*decided)
		request.Header.Set(headerNode, strconv.Itoa(n.spec.Process))
		request.Header.Set(headerPath, d.path)
		request.Header.Set(headerDecided, strconv.FormatInt(d.at, 10))
		response, err := client.Do(request)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = response.Body.Close()
		if r.Header.Get(headerPanic) != "" {
			panic("as requested")
		}
	})
}

// watch records when this process did not run, until it ends.
func (n *Worker) watch() {
	const every, late = 50 * time.Millisecond, 300 * time.Millisecond
	for last := time.Now(); ; {
		time.Sleep(every)
		now := time.Now()
		if now.Sub(last) > late {
			n.mu.Lock()
			_ = json.NewEncoder(n.out).Encode(judge.Record{
				Op: judge.OpEvent, Note: judge.NoteStop, Process: n.spec.Process, Sent: last.UnixMicro(), Received: now.UnixMicro(),
			})
			n.mu.Unlock()
		}
		last = now
	}
}
