package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

func ExampleNew() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	store := memstore.New(memstore.Options{
		MaxEntries: 10_000,
		Clock:      func() time.Time { return now },
	})
	for range 4 {
		res, err := headgate.Take(context.Background(), store, headgate.PerMinute(2), "login", "alice")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("allowed: %t, remaining: %d, retry after: %s\n", res.Allowed, res.Remaining, res.RetryAfter)
		now = now.Add(10 * time.Second)
	}
	// Output:
	// allowed: true, remaining: 1, retry after: 0s
	// allowed: true, remaining: 0, retry after: 0s
	// allowed: false, remaining: 0, retry after: 10s
	// allowed: true, remaining: 0, retry after: 0s
}
