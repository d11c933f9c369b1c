package storewrap_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// A store in Redis, wrapped, decides even while Redis is unavailable: here nothing listens at the address, and the node admits its local
// fallback share of the limit, which is all of it for a single node.
func Example() {
	redis, err := redisstore.Open("redis://127.0.0.1:1")
	if err != nil {
		log.Fatal(err)
	}
	store := storewrap.New(redis, storewrap.Options{Log: slog.New(slog.DiscardHandler)})

	limiter, err := headgate.New(store, headgate.Rule{ID: "by-user", By: []string{"user"}, Limit: headgate.PerHour(2)})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		decision, _ := limiter.Check(context.Background(), headgate.Request{Attributes: headgate.Attributes{"user": "ann"}})
		fmt.Println(decision.Allowed, decision.Path)
	}
	store.Close()
	redis.Close()
	// Output:
	// true local
	// true local
	// false local
}
