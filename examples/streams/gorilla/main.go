// Command gorilla is an example of message limits with github.com/gorilla/websocket: an echo server that drops messages in excess and
// sends the client the wait. It knows WebSockets; package streamlimit does not.
package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

func main() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), bytesOfUsers) // redisstore and storewrap to share counters
	if err != nil {
		log.Fatal(err)
	}
	limits, err := streamlimit.New(limiter, streamlimit.Options{Connection: headgate.PerSecond(10), OnExcess: streamlimit.Drop})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", echo(limits))) //nolint:gosec // an example: set timeouts in a server
}

// bytesOfUsers limits the bytes that each user sends, over all connections.
var bytesOfUsers = headgate.Rule{
	ID: "chat-bytes", By: []string{"user"}, Limit: headgate.Per(1_000_000, time.Minute), Cost: headgate.Cost{From: "descriptor.bytes"},
	Match: headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.message": headgate.OneOf("received")}},
}

// slowDown is sent for a dropped message.
type slowDown struct {
	Error        string `json:"error"`
	RetryAfterMs int64  `json:"retry_after_ms"`
}

func echo(limits *streamlimit.Limits) http.HandlerFunc {
	var upgrader websocket.Upgrader
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close() //nolint:errcheck // the connection has ended
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		gate := limits.Open(headgate.Attributes{"path": r.URL.Path, "user": r.URL.Query().Get("user")}) // use your authentication
		conn.SetReadLimit(64 * 1024)                                                                    // bounds a message that never ends
		pong := conn.PingHandler()
		conn.SetPingHandler(func(payload string) error { // is called by ReadMessage; a ping is a message, too
			if gate.Message(ctx, len(payload)).Action != streamlimit.Pass {
				return nil
			}
			return pong(payload)
		})
		for {
			kind, payload, err := conn.ReadMessage()
			if err != nil {
				return
			}
			switch v := gate.Message(ctx, len(payload)); v.Action {
			case streamlimit.Pass:
				err = conn.WriteMessage(kind, payload)
			case streamlimit.Drop:
				err = conn.WriteJSON(slowDown{"too many messages", v.RetryAfter.Milliseconds()})
			default: // not with Drop
				closing := websocket.FormatCloseMessage(v.Code, v.Reason)
				_ = conn.WriteControl(websocket.CloseMessage, closing, time.Now().Add(time.Second))
				return
			}
			if err != nil {
				return
			}
		}
	}
}
