package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// slotNodeFlag makes this program a node with a concurrency limit. Its arguments are the address of Redis, the address to listen on and
// the limit's lease.
const slotNodeFlag = "-slotnode"

// slotLimit is the concurrency limit, maxSlotsUsed what the store may count.
const slotLimit, maxSlotsUsed = 30, 1000

// slotUser is the user who has the requests in flight.
var slotUser = headgate.Attributes{"header.x-user": "acme"}

// serveSlots runs a node that serves requests until the client leaves. It ends with its parent.
func serveSlots(redis, listen, lease string) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	limit := headgate.Concurrent(slotLimit)
	var err error
	if limit.Window, err = time.ParseDuration(lease); err != nil {
		return err
	}
	store, err := redisstore.Open(redis)
	if err != nil {
		return err
	}
	wrapped := storewrap.New(store, storewrap.Options{})
	rule := headgate.Rule{ID: "slots", By: []string{"header.x-user"}, Limit: limit}
	limiter, err := headgate.New(wrapped, rule)
	if err != nil {
		return err
	}
	rule.Limit.Count = maxSlotsUsed // so that Remaining shows how far the limit is exceeded
	peeker, err := headgate.New(wrapped, rule)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := store.Ready(ctx); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/used", func(w http.ResponseWriter, r *http.Request) {
		d, err := peeker.Peek(r.Context(), headgate.Request{Attributes: slotUser})
		if err != nil || d.Path != headgate.PathStore {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprint(w, maxSlotsUsed-d.Limits[0].Remaining)
	})
	mux.Handle("/", httplimit.New(limiter, httplimit.Options{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // an error means that the client has left
		<-r.Context().Done()
	})))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(listener)
}
