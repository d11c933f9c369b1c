// Command sse is an example of message limits with server-sent events, where the server sends: a gate slows a fast source down to what
// each connection and each user may get. It knows events; package streamlimit does not.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

func main() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), eventsOfUsers) // redisstore and storewrap to share counters
	if err != nil {
		log.Fatal(err)
	}
	limits, err := streamlimit.New(limiter, streamlimit.Options{
		Connection: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 5, Window: time.Second}, // evenly spaced
		MaxDelay:   time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	source := func(_ context.Context, n int) string { return fmt.Sprint("price ", n) } // as fast as it is read
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", events(limits, source)))           //nolint:gosec // an example: set timeouts in a server
}

// eventsOfUsers limits the events that each user gets, over all connections.
var eventsOfUsers = headgate.Rule{
	ID: "events", By: []string{"user"}, Limit: headgate.PerMinute(600),
	Match: headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.message": headgate.OneOf("sent")}},
}

// events sends the events of a source until the client disconnects.
func events(limits *streamlimit.Limits, source func(ctx context.Context, n int) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		flush := http.NewResponseController(w)
		gate := limits.Open(headgate.Attributes{
			"path": r.URL.Path, "user": r.URL.Query().Get("user"), // use your authentication
			"descriptor.message": "sent",
		})
		for n := 0; ; n++ {
			event := source(r.Context(), n)
			if v := gate.Message(r.Context(), len(event)); v.Action == streamlimit.Close {
				// The browser reconnects when the next event may be sent.
				_, _ = fmt.Fprintf(w, "retry: %d\nevent: limited\ndata: %s\n\n", max(v.RetryAfter, time.Second).Milliseconds(), v.Reason)
				return
			}
			if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", n, event); err != nil {
				return
			}
			if err := flush.Flush(); err != nil {
				return
			}
		}
	}
}
