package streamlimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

func Example() {
	// Each user may send 240 messages per minute, over all connections.
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "chat-messages",
		Match: headgate.Match{Path: "/chat", Attributes: map[string]headgate.Pattern{
			"descriptor.message": headgate.OneOf("received"),
		}},
		By:    []string{"user"},
		Limit: headgate.Limit{Count: 240, Window: time.Minute, Burst: 3},
	})
	if err != nil {
		panic(err)
	}
	limits, err := streamlimit.New(limiter, streamlimit.Options{
		Connection: headgate.PerSecond(10),
		OnExcess:   streamlimit.Close, // the default is Delay
	})
	if err != nil {
		panic(err)
	}

	gate := limits.Open(headgate.Attributes{"path": "/chat", "user": "ada"}) // one per connection
	for _, payload := range []string{"hello", "how", "are", "you"} {
		v := gate.Message(context.Background(), len(payload))
		if v.Action == streamlimit.Close {
			fmt.Println(v.Code, v.Reason)
			break
		}
		fmt.Println(payload)
	}

	// Output:
	// hello
	// how
	// are
	// 1008 too many messages: chat-messages allows 240/minute, burst 3; retry in 1s
}
