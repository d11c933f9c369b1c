package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
)

// Keep keeps the units of concurrency limits that a request has in use, for a handler that hijacks the connection or works on after
// it has returned. The middleware then does not release them: call done when the connection or the work has ended, even after a
// panic. Otherwise they are in use for as long as the process runs.
//
// Call Keep before the handler returns; afterwards nothing is left to keep. If it is called several times, the units are released when
// all of the returned functions have been called. It also keeps the units of other middleware of this package in front of the
// handler. done is never nil: it does nothing if the request has no units, and when it is called again.
//
// Handlers that serve the connection until its end before they return, as httputil.ReverseProxy does, need not call Keep.
func Keep(r *http.Request) (done func(headgate.Outcome)) {
	var kept []*hold
	for h := holdOf(r.Context()); h != nil; h = h.outer {
		if h.keep() {
			kept = append(kept, h)
		}
	}
	var once sync.Once
	return func(o headgate.Outcome) { //nolint:contextcheck // releases do not belong to a request
		once.Do(func() {
			for _, h := range kept {
				h.drop(o)
			}
		})
	}
}

// hold is what a request has in use of concurrency limits.
type hold struct {
	decision headgate.Decision
	// outer belongs to middleware in front of this one; nil if there is none.
	outer *hold
	// keepers is how many callers of Keep have the units. While there is none, the middleware has them.
	keepers atomic.Int32
}

// released is the number of keepers after the units were released.
const released = -1

type holdKey struct{}

// holdOf returns the innermost hold of a request's context, or nil.
func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// keep adds a keeper, unless the units are released.
func (h *hold) keep() bool {
	for {
		n := h.keepers.Load()
		if n == released {
			return false
		}
		if h.keepers.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// drop removes a keeper, and releases the units with the last one.
func (h *hold) drop(o headgate.Outcome) {
	for {
		n := h.keepers.Load()
		if n > 1 && h.keepers.CompareAndSwap(n, n-1) {
			return
		}
		if n == 1 && h.keepers.CompareAndSwap(n, released) {
			h.decision.Done(o)
			return
		}
	}
}

// end releases the units for the middleware, unless they are kept. ctx is that of the request.
func (h *hold) end(ctx context.Context, status int) {
	if h.keepers.CompareAndSwap(0, released) {
		o := headgate.Outcome{Status: status, Cancelled: errors.Is(ctx.Err(), context.Canceled)}
		h.decision.Done(o) //nolint:contextcheck // releases do not belong to a request
	}
}

// serveHolding serves a request that has units in use, and releases them however that ends.
func (h *handler) serveHolding(w http.ResponseWriter, r *http.Request, d headgate.Decision, err error) {
	ctx := r.Context()
	held := &hold{decision: d, outer: holdOf(ctx)}
	inner := r
	status := http.StatusInternalServerError // in a panic, which is not recovered
	defer func() {
		// As if the handler had got the server's request: outer handlers read the pattern, and the server removes the files.
		if inner.Pattern != r.Pattern {
			r.Pattern = inner.Pattern
		}
		if inner.MultipartForm != r.MultipartForm {
			r.MultipartForm = inner.MultipartForm
		}
		held.end(ctx, status)
	}()
	h.settle(ctx, &d, err)
	switch {
	case !d.Allowed: // the response to a slow client needs no units
		held.end(ctx, h.status)
	case ctx.Err() != nil:
		held.end(ctx, http.StatusServiceUnavailable)
	}
	if h.admit(w, r, &d) {
		inner = r.WithContext(context.WithValue(ctx, holdKey{}, held))
		h.next.ServeHTTP(w, inner)
	}
	status = 0 // unknown, because the handler has the server's ResponseWriter
}
