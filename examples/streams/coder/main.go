// Command coder is an example of message limits with github.com/coder/websocket: an echo server that limits the messages of each
// connection and of each user, and the connections of each user. It knows WebSockets; package streamlimit does not.
package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

func main() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rules...) // redisstore and storewrap to share counters
	if err != nil {
		log.Fatal(err)
	}
	limits, err := streamlimit.New(limiter, streamlimit.Options{Connection: headgate.PerSecond(10)})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", &echo{limiter, limits})) //nolint:gosec // an example: set timeouts in a server
}

var rules = []headgate.Rule{
	{ID: "chat-connections", Match: onMessages(headgate.IsAbsent()), By: []string{"user"}, Limit: headgate.Concurrent(2)},
	{
		ID: "chat-messages", Match: onMessages(headgate.OneOf("received")), By: []string{"user"},
		Limit: headgate.Limit{Count: 240, Window: time.Minute, Burst: 20},
	},
}

func onMessages(p headgate.Pattern) headgate.Match {
	return headgate.Match{Path: "/chat", Attributes: map[string]headgate.Pattern{"descriptor.message": p}}
}

type echo struct {
	limiter *headgate.Limiter
	limits  *streamlimit.Limits
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	attributes := headgate.Attributes{"path": r.URL.Path, "user": r.URL.Query().Get("user")} // use your authentication
	decision, _ := e.limiter.Begin(r.Context(), headgate.Request{Attributes: attributes})
	defer decision.Done(headgate.Outcome{})
	gate := e.limits.Open(attributes)
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		OnPingReceived: func(ctx context.Context, payload []byte) bool { // is called by Read; a ping is a message, too
			return gate.Message(ctx, len(payload)).Action == streamlimit.Pass
		},
	})
	if err != nil {
		return
	}
	defer conn.CloseNow()        //nolint:errcheck // the connection has ended
	conn.SetReadLimit(64 * 1024) // bounds a message that never ends
	v := streamlimit.CloseFor(&decision)
	for v.Action != streamlimit.Close {
		kind, payload, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if v = gate.Message(r.Context(), len(payload)); v.Action == streamlimit.Pass {
			if err := conn.Write(r.Context(), kind, payload); err != nil {
				return
			}
		}
	}
	_ = conn.Close(websocket.StatusCode(v.Code), v.Reason)
}
